"""TLS contexts from the files of a client: PEM, PKCS #12 and Java's key stores, whatever the server is."""
