"""Sources of records (Kafka, files, tables of TiDB) and of schemas."""
