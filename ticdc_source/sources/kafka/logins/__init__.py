"""Logins, whatever the client library: tokens and their renewal."""
