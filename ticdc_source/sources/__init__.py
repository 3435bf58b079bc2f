"""Sources of records: Kafka, files, and tables of TiDB; and of schemas."""
