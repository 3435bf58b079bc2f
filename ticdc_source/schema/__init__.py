"""Schemas: MySQL types, columns and tables, and what DDL tells about them."""
