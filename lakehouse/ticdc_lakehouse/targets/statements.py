"""What a target is told → SQL that Delta and Iceberg understand."""

from __future__ import annotations

from collections.abc import Mapping

from ticdc_lakehouse.targets.target import NewColumn, Upsert, quoted

__all__ = ["definition", "merge_in_sql", "settings_in_sql", "text_in_sql"]


def text_in_sql(text: str) -> str:
    """Return a text as Spark SQL writes it."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def settings_in_sql(properties: Mapping[str, str]) -> str:
    """Return properties of a table as `TBLPROPERTIES` has them."""
    return "(" + ", ".join(f"{text_in_sql(name)} = {text_in_sql(value)}" for name, value in properties.items()) + ")"


def definition(column: NewColumn) -> str:
    """Return a column as `CREATE TABLE` and `ADD COLUMNS` have it."""
    comment = "" if column.comment is None else f" COMMENT {text_in_sql(column.comment)}"
    return f"{quoted(column.name)} {column.type.simpleString()}{comment}"


def merge_in_sql(target: str, view: str, upsert: Upsert) -> str:
    """Return the MERGE of the images in a view into a target."""
    return f"MERGE INTO {target} t USING {_source(view, upsert)} s {_clauses(upsert)}"


def _source(view: str, upsert: Upsert) -> str:
    """Return the source of the MERGE: the images that are not older than the tombstone of their key."""
    if upsert.tombstones is None:
        return view
    # As a query: Spark 4.1 cannot plan a MERGE from a view of an Iceberg table.
    return (
        f"(SELECT s.* FROM {view} s LEFT ANTI JOIN {upsert.tombstones.name} b "  # noqa: S608
        f"ON {_same_keys(upsert, 'b')} AND NOT s.gone AND b.{quoted(upsert.sequence)} > s.seq)"
    )


def _clauses(upsert: Upsert) -> str:
    """Return the clauses of the MERGE: only what is newer than the row of the target changes it."""
    keys = {quoted(name): f"s.k{number}" for number, name in enumerate(upsert.keys)}
    values = {quoted(name): f"s.c{number}" for number, name in enumerate(upsert.values)}
    own = {quoted(upsert.sequence): "s.seq"} | ({} if upsert.deleted is None else {quoted(upsert.deleted): "s.gone"})
    if upsert.committed_at is not None:
        own[quoted(upsert.committed_at)] = "timestamp_millis(shiftright(s.seq.commit_ts, 18))"
    # A row that somebody has added by hand may have no sequence.
    newer = f"WHEN MATCHED AND (s.seq > t.{quoted(upsert.sequence)}) IS NOT FALSE"
    special = f"{newer} AND s.gone THEN DELETE" if upsert.removes else f"{newer} AND s.bare THEN UPDATE SET {_set(own)}"
    absent = f"WHEN NOT MATCHED{' AND NOT s.gone' if upsert.removes else ''}"
    inserted = {**keys, **values, **own}
    return (
        f"ON {_same_keys(upsert, 't')} {special} {newer} THEN UPDATE SET {_set({**values, **own})} "  # noqa: S608
        f"{absent} THEN INSERT ({', '.join(inserted)}) VALUES ({', '.join(inserted.values())})"
    )


def _same_keys(upsert: Upsert, other: str) -> str:
    return " AND ".join(f"{other}.{quoted(name)} <=> s.k{number}" for number, name in enumerate(upsert.keys))


def _set(values: Mapping[str, str]) -> str:
    return ", ".join(f"t.{name} = {value}" for name, value in values.items())
