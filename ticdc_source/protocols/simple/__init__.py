"""TiCDC's simple protocol, in both encodings: JSON and Avro."""
