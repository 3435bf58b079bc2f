"""The command `ticdc-source`: what it is asked, and what it shows. It runs without Spark and Java."""
