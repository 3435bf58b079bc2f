"""kafka-python: everything that touches its private names."""
