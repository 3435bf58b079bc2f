"""The command `ticdc-lakehouse`."""
