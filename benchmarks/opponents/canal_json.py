"""canal-json with `from_json`: every value is text, and is cast."""

from pyspark.sql import DataFrame

from benchmarks.corpus import COLUMN_TYPES, Table

_IMAGES = """
    inline(case m.type
        when 'INSERT' then array(struct('insert' as _change_type, 1 as rank, m.data[0] as row))
        when 'DELETE' then array(struct('delete' as _change_type, 0 as rank, m.data[0] as row))
        when 'UPDATE' then array(
            struct('update_preimage' as _change_type, 0 as rank, m.old[0] as row),
            struct('update_postimage' as _change_type, 1 as rank, m.data[0] as row))
    end)
"""


def changes(records: DataFrame, table: Table) -> DataFrame:
    row = "struct<" + ",".join(f"{column.name}:string" for column in table.columns) + ">"
    message = f"type string, data array<{row}>, old array<{row}>, _tidb struct<commitTs:bigint>"
    parsed = records.selectExpr("partition", "offset", f"from_json(cast(value as string), '{message}') as m")
    images = parsed.selectExpr("partition", "offset", "m._tidb.commitTs as ts", _IMAGES)
    return images.selectExpr(
        "_change_type",
        "ts as _commit_version",
        "timestamp_millis(shiftright(ts, 18)) as _commit_timestamp",
        "struct(ts as commit_ts, rank, partition, offset, 0 as index) as _sequence",
        *(f"{_value(name, type_name)} as {name}" for name, type_name in table.columns),
    )


def _value(name: str, type_name: str) -> str:
    return (
        f"encode(row.{name}, 'ISO-8859-1')"
        if type_name == "blob"
        else f"cast(row.{name} as {COLUMN_TYPES[type_name].spark})"
    )
