"""The cost of reading, compared with what you would use instead: `make bench`, `python -m benchmarks --help`."""
