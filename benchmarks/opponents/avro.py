"""avro with `from_avro`: a user gives it the schema, and cuts the header off."""

import json

from pyspark.sql import DataFrame
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.functions import expr

from benchmarks.corpus import COLUMN_TYPES, Table
from benchmarks.corpus.avro import value_schema

_HEADER = 5


def changes(records: DataFrame, table: Table) -> DataFrame:
    body = expr(f"substring(value, {_HEADER + 1})")
    message = from_avro(body, json.dumps(value_schema(table))).alias("m")
    new, old = (f"struct({', '.join(f'{at}.{name}' for name, _ in table.columns)})" for at in ("m", "m._ticdc_before"))
    images = f"""
        inline(case m._tidb_op
            when 'c' then array(struct('insert' as _change_type, {new} as row))
            when 'd' then array(struct('delete' as _change_type, {new} as row))
            when 'u' then array(
                struct('update_preimage' as _change_type, {old} as row),
                struct('update_postimage' as _change_type, {new} as row))
        end)
    """
    parsed = records.select("partition", "offset", message)
    return parsed.selectExpr("partition", "offset", "m._tidb_commit_ts as ts", images).selectExpr(
        "_change_type",
        "ts as _commit_version",
        "timestamp_millis(shiftright(ts, 18)) as _commit_timestamp",
        f"struct(ts as commit_ts, {_RANK} as rank, partition, offset, 0 as index) as _sequence",
        *(f"{_value(name, type_name)} as {name}" for name, type_name in table.columns),
    )


_RANK = "case when _change_type in ('delete', 'update_preimage') then 0 else 1 end"


def _value(name: str, type_name: str) -> str:
    match type_name:
        case "enum":
            return f"row.{name}"
        case "unsigned":
            number = f"cast(row.{name} as decimal(20,0))"
            return f"cast(if(row.{name} < 0, {number} + 18446744073709551616, {number}) as decimal(20,0))"
        case _:
            return f"cast(row.{name} as {COLUMN_TYPES[type_name].spark})"
