"""canal-json, TiCDC's and official Canal's."""
