"""Options are what the user typed, parsed and checked without I/O."""
