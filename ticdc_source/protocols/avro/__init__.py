"""TiCDC's avro protocol: one topic a table, rows in Avro behind a schema id."""
