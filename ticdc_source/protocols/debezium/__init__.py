"""debezium JSON, TiCDC's and native Debezium's."""
