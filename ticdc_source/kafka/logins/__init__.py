"""Logins, whatever the client library: tokens and their renewal, and the key stores of TLS."""
