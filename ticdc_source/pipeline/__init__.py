"""The pipeline turns chunks of Kafka records into record batches of the read schema."""
