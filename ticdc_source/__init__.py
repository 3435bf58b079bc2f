"""Read TiDB's change feed, as TiCDC writes it to Kafka, into Spark.

    changes = (
        spark.read.format("ticdc")                                # or spark.readStream
        .option("kafka.bootstrap.servers", "broker:9092")
        .option("subscribe", "tidb-shop")                         # the topic
        .option("tables", "shop.orders")
        .load()
    )

Spark finds the format `ticdc` by itself; if not, call `spark.dataSource.register(ticdc_source.TiCDCDataSource)`. The
options are in docs/reference/options.md. Every intended error is a `TiCDCSourceError` (all classes are in
`ticdc_source.errors`), and its text says what happened, where, and what to do.
"""

from __future__ import annotations

import importlib
import pkgutil
import re

__version__ = "0.1.0"

# The stub lists the public names with their modules, for type checkers and for `__getattr__`.
_STUB = pkgutil.get_data(__name__, "__init__.pyi").decode()
_HOMES = {name: home for home, name in re.findall(r"^from (ticdc_source\..+) import (\w+) as", _STUB, re.MULTILINE)}

# What a public name needs, by the module that its import does not find.
_MISSING = {
    "pyspark": 'PySpark, which is not installed here: pip install "ticdc-source[spark]"',
    "pyspark.sql.datasource": (
        "PySpark 4.0 or newer, which has the Python Data Source API. On PySpark 3.5, read the topic with Spark's own "
        "Kafka source and decode its rows with ticdc_source.decode(frame, …)"
    ),
}

__all__ = ["__version__", *_HOMES]  # noqa: PLE0604 (they are strings)


def __getattr__(name: str) -> object:
    """Import a public name at its first use, so that the package loads fast and without pyspark."""
    if name == "errors":
        return importlib.import_module(f"{__name__}.errors")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(importlib.import_module(_HOMES[name]), name)
    except ModuleNotFoundError as error:
        if error.name not in _MISSING:
            raise
        raise ModuleNotFoundError(f"{__name__}.{name} needs {_MISSING[error.name]}", name=error.name) from None


def __dir__() -> list[str]:
    return [*__all__, "errors"]
