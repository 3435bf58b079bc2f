"""Schemas: MySQL types, tables, and what DDL says of them."""
