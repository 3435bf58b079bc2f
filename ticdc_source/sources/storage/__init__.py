"""Files of TiCDC's storage sink: which there are, and a range of files → chunks."""
