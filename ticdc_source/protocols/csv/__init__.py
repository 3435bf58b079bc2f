"""The decoder of CSV in files of a storage sink (pingcap/ticdc pkg/sink/codec/csv).

A row has its table, operation and commit-ts; its columns are in the schema file of the table's version. A file's path
names the version, and the keys of its messages repeat it (docs/design/0022-storage-sink.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import orjson
import pyarrow as pa

from ticdc_source.errors import DecodeError
from ticdc_source.kernels import strings
from ticdc_source.kernels.wire import Wire, text_bytes
from ticdc_source.protocols.base import Decoded, Learned, LearnedTable, ProtocolFacts
from ticdc_source.protocols.csv.lines import (
    OWN_FIELDS,
    CSVCutter,
    Key,
    columns_of,
    fields_of,
    has_is_update,
    parsed_key,
    rows_of,
    with_header,
)
from ticdc_source.protocols.csv.template import begin_of, template_of
from ticdc_source.protocols.decoding import Decoder, ReadEvent
from ticdc_source.protocols.events import Corrupt, Split, TableEvents, WatermarkEvent
from ticdc_source.protocols.images import Parsed
from ticdc_source.protocols.messages import (
    MALFORMED,
    JSONObject,
    message_of_schema_file,
    parse_exact,
    parse_failure,
    readable,
    table_name,
    text,
    tso,
)
from ticdc_source.protocols.templates import General, Templates
from ticdc_source.schema.ddl_event import DDLEvent
from ticdc_source.schema.model import Column, ColumnFacts, Definitions, ReadField
from ticdc_source.schema.table_name import TableName, Wants, every_table
from ticdc_source.schema.types import BINARIES, ColumnType, declared_type, parse_type
from ticdc_source.sources.chunk import Chunk
from ticdc_source.sources.storage.file_format import FileFormat, FileSettings

_KEY = b'{"TableVersion":'
_CHECKPOINT = b'{"checkpoint-ts":'
_OPERATIONS = {"I": "insert", "U": "update", "D": "delete"}
_MOST_DIGITS = 19  # of a commit-ts

_BARE = frozenset({"number", "float", "bit"})  # the families of types whose values TiCDC writes without quotes
_KERNELS: dict[str, Wire] = {**strings.TEXT_KERNELS, "enum": strings.LABEL, "set": strings.LABEL}
_HEX_BINARY = strings.binary_wire(bytes.fromhex)

_CUT = (
    "the file ends in this row, without the terminator that ends every row, or without the new row of an update: the "
    "file was cut short, or the option 'terminator' is not the changefeed's (csv.terminator)"
)

_FILES = FileFormat(
    extension=".csv",
    cutter=CSVCutter,
    of_schema=message_of_schema_file(orjson.dumps),  # the unchanged file: rows do not say what it defines
    of_checkpoint=lambda ts: orjson.dumps({"checkpoint-ts": ts}),
)


def _recognizes(key: bytes | None, value: bytes | None) -> bool:
    plain = value or b""
    is_schema = plain[:1] == b"{" and b'"TableColumnsTotal":' in plain
    return (key or b"").startswith(_KEY) or is_schema or plain.startswith(_CHECKPOINT)


def table_of(schema: JSONObject) -> TableName:
    return table_name(schema.get("Schema"), schema.get("Table"))


def definitions_of(events: Iterable[DDLEvent]) -> Definitions:
    schemas = [schema for event in events for schema in event.table_changes or ()]
    return {
        (table_of(each).folded, tso(each["TableVersion"])): _defined_columns(each)
        for each in schemas
        if each.get("TableColumns")
    }


def _defined_columns(schema: JSONObject) -> tuple[Column, ...]:
    columns = schema["TableColumns"]
    has_key = any(column.get("ColumnIsPk") == "true" for column in columns)
    return tuple(_column(column, has_key=has_key) for column in columns)


def _column(column: JSONObject, *, has_key: bool) -> Column:
    is_key = column.get("ColumnIsPk") == "true"
    facts = ColumnFacts(
        primary_key=is_key,
        handle_key=is_key if has_key else None,  # the handle key may be a unique key, which files do not tell
        nullable=column.get("ColumnNullable") != "false",
        default=None if column.get("ColumnDefault") is None else str(column["ColumnDefault"]),
    )
    return Column(text(column["ColumnName"]), _type_of(column), key=is_key, facts=facts)


def _type_of(column: JSONObject) -> ColumnType:
    scale = _number(column.get("ColumnScale"))
    return declared_type(
        parse_type(text(column["ColumnType"]).lower()),
        length=_number(column.get("ColumnPrecision")),
        scale=scale,
        fraction=scale,
        labels=tuple(map(text, column.get("ColumnElems") or ())) or None,
    )


def _number(digits: object) -> int | None:
    return None if digits is None else int(text(digits))


class CSV(Decoder):
    """The decoder of CSV."""

    facts = ProtocolFacts(
        name="csv",
        recognizes=_recognizes,
        kernels=_KERNELS,
        ddl_partition=0,
        definitions=definitions_of,
        files=_FILES,
        in_topics=False,
    )

    def split(self, chunk: Chunk, wants: Wants = every_table, learned: Learned | None = None) -> Split:  # noqa: ARG002
        """Read the table of each row, quickly for rows that begin alike, as most of a file do."""
        whole = self._of_one_table(chunk, wants)
        if whole is not None:
            return whole
        split = Split()
        delimiter = self.settings.files.delimiter.encode()
        tables_by_head: dict[bytes, TableName] = {}
        rows: dict[TableName, tuple[list[int], list[bytes], list[Key]]] = {}
        for position, (key, value) in enumerate(zip(chunk.keys, chunk.values, strict=True)):
            message = value or b""
            try:
                if key is None:
                    _classify(split, position, message)
                    continue
                at = message.find(delimiter) + len(delimiter)
                table = next((name for head, name in tables_by_head.items() if message.startswith(head, at)), None)
                if table is None:
                    table, head = self._table_of(message)
                    if message.startswith(head, at):
                        tables_by_head[head] = table
                parsed = parsed_key(key)
            except MALFORMED as error:
                failure = parse_failure(error, self.facts.row).at(chunk.address(position))
                split.corrupt.append(Corrupt(position, 0, failure))
                continue
            positions, messages, keys = rows.setdefault(table, ([], [], []))
            positions.append(position)
            messages.append(message)
            keys.append(parsed)
        for table, (positions, messages, keys) in rows.items():
            split.tables[table] = TableEvents(chunk, table, positions, [0] * len(keys), messages, keys)
        split.keep(wants)
        return split

    def _of_one_table(self, chunk: Chunk, wants: Wants) -> Split | None:
        """Split a chunk if all are rows of one table with one key, and begin as TiCDC writes them."""
        key, value = (each[0] if len(each) else None for each in (chunk.keys, chunk.values))
        if key is None or value is None or chunk.keys.count(key) < len(chunk):
            return None
        try:
            parsed, (table, head) = parsed_key(key), self._table_of(value)
        except MALFORMED:
            return None
        begins = tuple(begin_of(operation, head, self.settings.files) for operation in _OPERATIONS)
        if not all(value is not None and value.startswith(begins) for value in chunk.values):
            return None
        return Split.of_one_table(chunk, table, wants, parsed)

    def _table_of(self, message: bytes) -> tuple[TableName, bytes]:
        """Return a row's table, and the bytes after the operation that name it, as TiCDC writes them."""
        own, quotes, _ = fields_of(message, self.settings.files, OWN_FIELDS)
        begin = own[0] or ""
        # Other words are left to `_reader`, which knows whether the table is wanted.
        if len(own) < OWN_FIELDS or not begin.isalpha() or (self.settings.files.quote and not all(quotes)):
            raise ValueError(
                f"rows begin with an operation (I, U or D), table and schema, but this one with {begin[:10]!r}: set "
                "csv.delimiter and csv.quote as in the changefeed"
            )
        name = TableName(text(own[2]), text(own[1]))
        return name, self._head_of(name)

    def _head_of(self, table: TableName) -> bytes:
        quote, delimiter = self.settings.files.quote, self.settings.files.delimiter
        parts = (part.replace(quote, 2 * quote) if quote else part for part in (table.table, table.database))
        return text_bytes(delimiter.join(f"{quote}{part}{quote}" for part in parts) + delimiter)

    def commit_versions(self, events: TableEvents) -> pa.Int64Array:
        """Read the fourth field, if rows have a commit-ts."""
        if not self.settings.files.include_commit_ts:
            return pa.nulls(len(events.payloads), pa.int64())

        def commit_ts(payload: bytes, key: Key) -> int | None:
            settings = with_header(self.settings.files, key.header)
            try:
                return _commit_ts(fields_of(payload, settings, OWN_FIELDS + 1).texts)
            except MALFORMED:
                return None

        return pa.array(map(commit_ts, events.payloads, events.event_keys), pa.int64())

    def _by_templates(self, events: TableEvents, learned: LearnedTable, general: General) -> Decoded:
        """Read the rows with the first key: rows do not say which version of the table they have."""
        keys = events.event_keys
        key = next((key for key in keys if not key.is_cut), None)
        if key is None:
            return general(events, None)
        settings = with_header(self.settings.files, key.header)
        try:
            columns = _columns(events.table, key, settings, learned)
        except MALFORMED:
            return general(events, None)
        templates = learned.kept(Templates, (key, columns))
        quoted = [bool(settings.quote) and _is_quoted(column) for column in columns]
        template = template_of(self._head_of(events.table), quoted, settings)
        if template is not None:
            templates.know(template, 0, columns)
        commit_ts = None if settings.include_commit_ts else pa.nulls(len(events), pa.int64())
        candidates = None
        if keys.count(key) < len(keys):
            candidates = pa.array([event for event, each in enumerate(keys) if each == key], pa.int32())
        return templates.decode(events, learned, self._wire_of, general, commit_ts, candidates)

    def _reader(self, events: TableEvents, parsed: Parsed, learned: LearnedTable) -> ReadEvent:
        plan, images, settings = learned.plan, parsed.images, self.settings.files
        columns: tuple[Column, ...] = ()
        names: list[str] = []
        texts: list[int] = []  # the indexes of columns whose values have quotes
        last: Key | None = None

        def read(event: int, payload: bytes) -> None:
            nonlocal columns, names, texts, last, settings
            key = events.event_keys[event]
            if key.is_cut:
                raise ValueError(_CUT)
            if key is not last:  # `parsed_key` keeps one object for each
                settings = with_header(self.settings.files, key.header)
                columns, last = _columns(events.table, key, settings, learned), key
                names = [column.name for column in columns]
                texts = [index for index, column in enumerate(columns) if settings.quote and _is_quoted(column)]
            images.continue_run(columns)
            fields = [fields_of(row, settings) for row in rows_of(payload, settings)]
            first = OWN_FIELDS + settings.include_commit_ts + has_is_update(fields[0], settings)
            if settings.include_commit_ts:
                parsed.commit_ts[event] = _commit_ts(fields[0].texts)
            parsed.placed[event] = not settings.include_commit_ts
            for each in fields:
                if len(each.texts) != first + len(names):
                    raise _field_count_error(len(each.texts), first, columns, key)
                for index in texts:
                    if not each.quotes[first + index] and each.texts[first + index] is not None:
                        raise _bare_text_error(columns[index], each.texts[first + index])
            cells = [dict(zip(names, each.texts[first:], strict=True)) for each in fields]
            operations = [each.texts[0] for each in fields]
            if operations == ["D", "I"]:
                images.add(event, 0, "update", cells[1], cells[0], plan)
            elif len(operations) == 1 and operations[0] in _OPERATIONS:
                images.add(event, 0, _OPERATIONS[operations[0]], cells[0], None, plan)
            else:
                raise ValueError(f"operation {' and '.join(map(str, operations)):.20}")

        return read

    def _wire_of(self, column: Column, read_field: ReadField) -> tuple[Wire | None, ColumnType]:
        wire, type_ = super()._wire_of(column, read_field)
        if type_.name in BINARIES and self.settings.files.binary_encoding == "hex":
            return _HEX_BINARY, type_
        return wire, type_


def _classify(split: Split, position: int, value: bytes) -> None:
    message = parse_exact(value)
    if "checkpoint-ts" in message:
        split.watermarks.append(WatermarkEvent(position, 0, tso(message["checkpoint-ts"])))
        return
    version, query = tso(message["TableVersion"]), readable(message.get("Query") or "")
    event = DDLEvent(
        position=position,
        index=0,
        commit_ts=version if query else None,
        table=table_of(message),
        query=query,
        type="",
        type_code=message.get("Type") if query else None,
        table_changes=[message],
    )
    definitions_of([event])  # a broken definition makes a bad record
    (split.ddl if query else split.bootstraps).append(event)


def _columns(table: TableName, key: Key, settings: FileSettings, learned: LearnedTable) -> tuple[Column, ...]:
    defined = learned.definition(table, key.version)
    if defined is None:
        raise DecodeError(
            f"version {key.version} of {table} is unknown: no schema file in the table's folder 'meta' has it. Was it "
            "removed? If the records come from a DataFrame, keep those of schema files in it"
        )
    if key.header is None:
        return defined
    return tuple(defined[index] for index in columns_of(key.header, settings, tuple(one.name for one in defined)))


def _commit_ts(fields: Sequence[str | None]) -> int:
    digits = fields[OWN_FIELDS] if len(fields) > OWN_FIELDS else None
    if digits is None or not (digits.isascii() and digits.isdecimal()) or len(digits) > _MOST_DIGITS:
        raise ValueError(
            f"the fourth field is {digits!r:.40}, not a commit-ts. If include-commit-ts is off for the changefeed, set "
            "csv.includeCommitTs=false"
        )
    return tso(int(digits))


def _is_quoted(column: Column) -> bool:
    return column.type is not None and column.type.family not in _BARE


def _bare_text_error(column: Column, field: str | None) -> ValueError:
    msg = f"{column.name} is the text {field!r:.40} without quotes: set csv.null and csv.quote as in the changefeed"
    return ValueError(msg)


def _field_count_error(count: int, first: int, columns: Sequence[Column], key: Key) -> DecodeError:
    return DecodeError(
        f"{count} fields, but {first + len(columns)} are expected: {first} of TiCDC, and {len(columns)} columns of "
        f"version {key.version}. Set csv.includeCommitTs and csv.outputOldValue as in the changefeed. If the table has "
        "virtual columns, or the changefeed column selectors, set output-field-header=true for the changefeed: a "
        "header names the columns"
    )
