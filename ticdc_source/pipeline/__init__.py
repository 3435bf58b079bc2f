"""The pipeline: chunks of Kafka records → record batches of the read schema."""
