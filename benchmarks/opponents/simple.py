"""simple with `from_json`: every value is text, and is cast; the types are known."""

from pyspark.sql import DataFrame

from benchmarks.corpus import COLUMN_TYPES, Table

_IMAGES = """
    inline(case m.type
        when 'INSERT' then array(struct('insert' as _change_type, 1 as rank, m.data as row))
        when 'DELETE' then array(struct('delete' as _change_type, 0 as rank, m.old as row))
        when 'UPDATE' then array(
            struct('update_preimage' as _change_type, 0 as rank, m.old as row),
            struct('update_postimage' as _change_type, 1 as rank, m.data as row))
    end)
"""
_TIMESTAMP = "struct<location:string,value:string>"
_LABELS = "array('new', 'paid', 'shipped', 'returned')"


def changes(records: DataFrame, table: Table) -> DataFrame:
    members = (f"{name}:{_TIMESTAMP if kind == 'timestamp' else 'string'}" for name, kind in table.columns)
    row = f"struct<{','.join(members)}>"
    message = f"type string, commitTs bigint, data {row}, old {row}"
    parsed = records.selectExpr("partition", "offset", f"from_json(cast(value as string), '{message}') as m")
    images = parsed.selectExpr("partition", "offset", "m.commitTs as ts", _IMAGES)
    return images.selectExpr(
        "_change_type",
        "ts as _commit_version",
        "timestamp_millis(shiftright(ts, 18)) as _commit_timestamp",
        "struct(ts as commit_ts, rank, partition, offset, 0 as index) as _sequence",
        *(f"{_value(name, type_name)} as {name}" for name, type_name in table.columns),
    )


def _value(name: str, type_name: str) -> str:
    match type_name:
        case "blob":
            return f"unbase64(row.{name})"
        case "timestamp":
            return f"to_utc_timestamp(row.{name}.value, row.{name}.location)"
        case "enum":
            return f"get({_LABELS}, cast(row.{name} as int) - 1)"
        case _:
            return f"cast(row.{name} as {COLUMN_TYPES[type_name].spark})"
