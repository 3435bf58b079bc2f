"""Column types, keys, defaults and comments from DDL texts."""
