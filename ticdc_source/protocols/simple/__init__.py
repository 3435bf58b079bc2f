"""TiCDC's simple protocol, in its JSON encoding."""
