"""The command ticdc-source, against a real broker."""
