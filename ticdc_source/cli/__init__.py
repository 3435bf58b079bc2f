"""The command `ticdc-source` asks and shows, one file per command, without Spark and Java."""
