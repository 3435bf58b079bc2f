"""The pipeline turns chunks of Kafka records into Arrow record batches with the read schema."""
