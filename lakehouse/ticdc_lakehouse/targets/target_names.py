"""Names of targets in SQL: their parts, and which names are refused."""

from __future__ import annotations

import re

from pyspark.sql import SparkSession

from ticdc_lakehouse.errors import TargetError

_PART = r"(?:`(?:[^`]|``)+`|\w+)"
_NAME = re.compile(rf"{_PART}(?:\.{_PART})*")
_ABSOLUTE = re.compile(r"/|[A-Za-z][A-Za-z0-9+.-]*:")
# Catalogs put a table into a folder with its name, and each of these has a meaning in Hadoop's paths.
_NO_FOLDER = re.compile(r"[/\\:\x00-\x1f]|\A\.{1,2}\Z")
_SESSION_CATALOG = "spark_catalog"


def is_path(name: str) -> bool:
    parts = parts_of(name)
    return len(parts) == 2 and bare(parts[0]).lower() == "delta" and parts[1].startswith("`")  # noqa: PLR2004 (delta, path)


def parts_of(name: str) -> list[str]:
    return re.findall(r"`(?:[^`]|``)*`|[^.`]+", name)


def bare(part: str) -> str:
    return part[1:-1].replace("``", "`") if part.startswith("`") else part


def check_name(name: str) -> None:
    """Refuse a name that SQL would read differently, or whose table would be outside its warehouse."""
    if not _NAME.fullmatch(name):
        raise TargetError(
            f"The target {name!r} is not a name in SQL. Separate its parts by dots, and put backticks around parts "
            "with more than letters, digits and _, as in lake.shop.`my-table` or delta.`/data/my-table`"
        )
    parts = [bare(part) for part in parts_of(name)]
    if is_path(name):
        if not _ABSOLUTE.match(parts[1]):
            raise TargetError(
                f"The target {name} is a relative path. Use an absolute path or a URI, as in delta.`/data/orders`"
            )
        return
    wrong = next((part for part in parts if _NO_FOLDER.search(part)), None)
    if wrong is not None:
        raise TargetError(
            f"The target {name!r} is refused: with {wrong!r} in its name, the table could be outside the catalog's "
            "warehouse. Use a name without slashes, colons and control characters"
        )


def catalog_of(spark: SparkSession, name: str) -> str:
    """Return the catalog of a table, without quotes: the one in its name, or the current one."""
    first, *more = map(bare, parts_of(name))
    is_named = more and spark.conf.get(f"spark.sql.catalog.{first}", None) is not None
    return first if is_named else spark.catalog.currentCatalog()


def check_session_catalog(spark: SparkSession, name: str) -> None:
    """Refuse a name for a new table that Spark's own catalog does not accept, before its namespace is created."""
    parts = [bare(part) for part in parts_of(name)]
    if is_path(name) or all(re.fullmatch(r"\w+", part, re.ASCII) for part in parts):
        return
    if catalog_of(spark, name) == _SESSION_CATALOG:
        raise TargetError(
            f"The target {name} cannot be created: names in the catalog {_SESSION_CATALOG} have only letters, digits "
            "and _. Use such a name"
        )


def deleted_keys_of(target: str) -> str:
    return f"{target[:-1].rstrip('/')}__deleted`" if target.endswith("`") else f"{target}__deleted"


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
