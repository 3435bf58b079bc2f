"""CSV as TiCDC's storage sink writes it (pingcap/ticdc pkg/sink/codec/csv)."""
