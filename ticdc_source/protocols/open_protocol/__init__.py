"""TiCDC open-protocol."""
