"""Schemas: MySQL types, columns and tables, and what DDL says about them."""
