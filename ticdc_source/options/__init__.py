"""Options: what the user typed, parsed and checked without I/O."""
