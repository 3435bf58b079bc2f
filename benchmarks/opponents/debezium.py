"""debezium with `from_json`, which parses most types itself; the `schema` of a message is ignored."""

from pyspark.sql import DataFrame

from benchmarks.corpus import COLUMN_TYPES, Table

# The types as which `from_json` reads columns; the other columns keep theirs.
_PARSED = {"unsigned": "bigint", "date": "int", "datetime": "bigint", "enum": "string"}
_WRAPPED = "cast(row.{name} as decimal(20,0))"
_VALUES = {
    "unsigned": f"cast({_WRAPPED} + if(row.{{name}} < 0, 18446744073709551616, 0) as decimal(20,0))",
    "date": "date_from_unix_date(row.{name})",
    "datetime": "cast(timestamp_micros(row.{name}) as timestamp_ntz)",
}
_IMAGES = """
    inline(case m.payload.op
        when 'c' then array(struct('insert' as _change_type, 1 as rank, m.payload.after as row))
        when 'd' then array(struct('delete' as _change_type, 0 as rank, m.payload.before as row))
        when 'u' then array(
            struct('update_preimage' as _change_type, 0 as rank, m.payload.before as row),
            struct('update_postimage' as _change_type, 1 as rank, m.payload.after as row))
    end)
"""


def changes(records: DataFrame, table: Table) -> DataFrame:
    fields = ",".join(
        f"{name}:{_PARSED.get(type_name, COLUMN_TYPES[type_name].spark)}" for name, type_name in table.columns
    )
    row = f"struct<{fields}>"
    message = f"payload struct<source:struct<commit_ts:bigint>,op:string,before:{row},after:{row}>"
    parsed = records.selectExpr("partition", "offset", f"from_json(cast(value as string), '{message}') as m")
    images = parsed.selectExpr("partition", "offset", "m.payload.source.commit_ts as ts", _IMAGES)
    return images.selectExpr(
        "_change_type",
        "ts as _commit_version",
        "timestamp_millis(shiftright(ts, 18)) as _commit_timestamp",
        "struct(ts as commit_ts, rank, partition, offset, 0 as index) as _sequence",
        *(f"{_VALUES.get(type_name, 'row.{name}').format(name=name)} as {name}" for name, type_name in table.columns),
    )
