"""Read TiDB's change feed, as TiCDC writes it to Kafka, into Spark: `spark.read.format("ticdc")`."""

from __future__ import annotations

__version__ = "0.1.0"
