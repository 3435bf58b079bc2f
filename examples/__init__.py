"""Things to run against a real Kafka: the demo, the examples, and the broker they share."""
