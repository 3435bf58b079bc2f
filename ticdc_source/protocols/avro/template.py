"""The template of avro rows, made of their schema (pingcap/ticdc pkg/sink/codec/avro/arvo.go)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ticdc_source.kernels.contract import (
    AvroField,
    AvroNumber,
    AvroRow,
    AvroSkip,
    AvroType,
    Branch,
    Const,
    Forget,
    Image,
    Operation,
    Program,
    SetOperation,
    Slot,
    Step,
    Way,
)
from ticdc_source.protocols.avro.row_schema import BEFORE, COMMIT_TS, OP, RowSchema
from ticdc_source.protocols.templates import MOST_TSO, Template

_TYPES = {
    "boolean": AvroType.BOOLEAN,
    "int": AvroType.LONG,
    "long": AvroType.LONG,
    "float": AvroType.FLOAT,
    "double": AvroType.DOUBLE,
    "bytes": AvroType.BYTES,
    "string": AvroType.STRING,
}
_INSERT, _UPDATE, _DELETE = map(SetOperation, Operation)
# Each is a text of one letter. With avro-include-before-value, a delete has its row as the old row, too.
_OPERATION = Branch(
    [Way(b"\x02c", [_INSERT]), Way(b"\x02u", [_UPDATE]), Way(b"\x02d", [_DELETE, Forget(Image.PREIMAGE)])]
)


def template_of(header: bytes, schema: RowSchema) -> Template | None:
    """Return the template of the rows with a schema; None if TiCDC does not write such a schema."""
    fields: Sequence[Mapping[str, Any]] = schema.schema.declared["fields"]
    count = len(schema.columns)
    row = [_field(field["type"]) for field in fields[:count]]
    if None in row or not schema.own.issuperset(field["name"] for field in fields[count:]):
        return None
    columns = [field for field in row if field is not None]
    steps: list[Step] = [Const(header), AvroRow(Image.MAIN, columns)]
    is_known = False  # the operation
    for field in fields[count:]:
        if field["name"] == OP:
            steps.append(_OPERATION)
            is_known = True
        elif field["name"] == COMMIT_TS:
            steps.append(AvroNumber(Slot.COMMIT_TS, MOST_TSO))
        elif field["name"] != BEFORE:
            steps.append(AvroSkip(_TYPES[field["type"]]))
        elif _is_same_row(field["type"], fields[:count]):
            old: list[Step] = [AvroRow(Image.PREIMAGE, columns)]
            inserted, updated = ([], old) if is_known else ([_INSERT], [_UPDATE, *old])
            steps.append(Branch([Way(b"\x00", inserted), Way(b"\x02", updated)]))
            is_known = True
        else:
            return None
    if not is_known:
        steps.append(_INSERT)
    return Template(identity=header, program=lambda _: Program(steps, heads=(), tail=b"", partial=False))


def _is_same_row(branches: Sequence[Any], columns: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether the type of the old row is a union of null and a record with these fields."""
    if len(branches) != 2 or branches[0] != "null":  # noqa: PLR2004 (null, and the record)
        return False
    old = [(field["name"], field["type"]) for field in branches[1]["fields"]]
    return old == [(field["name"], field["type"]) for field in columns]


def _field(declared: object) -> AvroField | None:
    """Return a column's field; None unless its type is one of `_TYPES`, or a union of one with null."""
    branches = declared if isinstance(declared, list) else [declared]
    names = [each["type"] if isinstance(each, dict) else each for each in branches]
    types = [_TYPES[name] for name in names if name in _TYPES]
    if len(types) != 1 or AvroType.BOOLEAN in types or len(names) - names.count("null") != 1 or len(names) > 2:  # noqa: PLR2004
        return None
    return AvroField(types[0], names.index("null") if "null" in names else None)
