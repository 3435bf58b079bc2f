"""Sources of records: Kafka and files; and of schemas."""
