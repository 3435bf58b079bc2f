"""The user's options, parsed and checked without I/O."""
