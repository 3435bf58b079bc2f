"""A long run on this machine: a producer, three brokers, a Spark program, and faults. `make soak` runs it."""
