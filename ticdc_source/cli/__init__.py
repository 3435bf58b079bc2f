"""The command line `ticdc-source`, a file per command, without Spark or Java."""
