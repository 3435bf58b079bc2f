"""What things cost, measured beside what one would use instead: `make bench`, `python -m benchmarks --help`."""
