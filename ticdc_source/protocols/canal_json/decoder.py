"""canal-json, TiCDC's and official Canal's (docs/wire.md, items 68 to 76; pingcap/ticdc pkg/sink/codec/canal).

One JSON object a message; every value in it is text. `mysqlType` and `sqlType` describe the columns.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, ClassVar

from ticdc_source.errors import DecodeError
from ticdc_source.events import Chunk, DDLEvent, Split, TableEvents, TableName, Wants, WatermarkEvent, every_table
from ticdc_source.kernels import Wire
from ticdc_source.options.options import Options
from ticdc_source.protocols.base import Decoded, Learned, LearnedTable
from ticdc_source.protocols.canal_json.columnar import CanalColumns
from ticdc_source.protocols.canal_json.kernels import KERNELS
from ticdc_source.protocols.cast import cast_images
from ticdc_source.protocols.compression import decompressed
from ticdc_source.protocols.describe import describe_images, plan_of
from ticdc_source.protocols.images import Images, Parsed
from ticdc_source.protocols.large_messages import LargeMessages
from ticdc_source.protocols.messages import (
    MALFORMED,
    milliseconds,
    parse_failure,
    parse_object,
    readable,
    table_name,
    text,
    tso,
)
from ticdc_source.protocols.plan import Plan
from ticdc_source.protocols.prefix_match import PrefixMatch, object_bytes, split_by_prefix
from ticdc_source.schema.model import Column, ReadField, TableSchema, TypeVersions
from ticdc_source.schema.types import ColumnType, parse_type, type_of

__all__ = ["CanalJSON"]

_ROW_TYPES = frozenset({"INSERT", "UPDATE", "DELETE"})
_WATERMARK = "TIDB_WATERMARK"
_CLAIM_CHECK = b'"claimCheckLocation":"'

# The prefix of a row message as TiCDC writes it: enough to identify its table. Names with escapes, and other producers'
# member order, take the general path: a whole parse.
_PREFIX = PrefixMatch(
    rb'\{"id":\d+,"database":"([^"\\]*)","table":"([^"\\]*)","pkNames":(?:null|\[[^\]]*\]),"isDdl":false,'
    rb'"type":"(INSERT|UPDATE|DELETE)",',
    operations=(b"INSERT", b"UPDATE", b"DELETE"),
    follows=b'"es":',
)

# sqlType (java.sql.Types) that tells binary from text whatever mysqlType says (docs/wire.md, item 16).
_BLOB = 2004
_TEXT_TO_BINARY = {
    "char": "binary", "varchar": "varbinary", "tinytext": "tinyblob", "text": "blob", "mediumtext": "mediumblob",
    "longtext": "longblob",
}  # fmt: skip
# TiCDC before v5.4 never wrote "unsigned" and always promoted the sqlType (docs/wire.md, item 75). The sign is not on
# the wire, so the column gets the type with room for both. Later versions never promote a signed column.
_PROMOTED = {"tinyint": 5, "smallint": 4, "int": -5, "bigint": 3}


@dataclass(frozen=True)
class CanalJSON:
    """The canal-json decoder.

    Attributes:
        codec: the option `valueCompression`.
        large: how messages are read that were too large for Kafka.
    """

    codec: str = "auto"
    large: LargeMessages = field(default_factory=LargeMessages)

    name: ClassVar[str] = "canal-json"
    kernels: ClassVar[Mapping[str, Wire]] = KERNELS
    options: ClassVar[frozenset[str]] = frozenset({"valueCompression", "claimCheckLocation", "onHandleKeyOnly"})
    chunk_records: ClassVar[int] = 4000
    ddl_partition: ClassVar[int | None] = 0
    watermarks_need: ClassVar[str | None] = "enable-tidb-extension=true"
    types_in_ddl: ClassVar[bool] = False

    @classmethod
    def of(cls, options: Options) -> CanalJSON:
        """Return the decoder that these options ask for."""
        return cls(options.value_compression, LargeMessages.of(options))

    def recognizes(self, key: bytes | None, value: bytes | None) -> bool:  # noqa: ARG002 (keys carry nothing)
        """Tell by members that only canal-json has."""
        value = object_bytes(value, self.codec)
        return b'"isDdl"' in value and (b'"mysqlType"' in value or b'"sqlType"' in value)

    def claim_checks(self, key: bytes | None, value: bytes | None) -> int:
        """Look for the address in the value; a record of this wire format has an empty key, or none."""
        try:
            return 0 if key else int(_CLAIM_CHECK in decompressed(value or b"", self.codec))
        except DecodeError:  # `split` reports it
            return 0

    def split(self, chunk: Chunk, wants: Wants = every_table, learned: Learned | None = None) -> Split:
        """PrefixMatch at the table of each message; parse the few that are no plain rows."""
        return split_by_prefix(
            chunk,
            _PREFIX,
            _sort,
            "a canal-json message",
            codec=self.codec,
            tombstones=False,
            wants=wants,
            learned=learned,
        )

    def describe(
        self,
        events: TableEvents,
        ddl: Sequence[DDLEvent] = (),  # noqa: ARG002 (their texts are in `declared`)
        declared: Mapping[str, TypeVersions] | None = None,
    ) -> list[TableSchema]:
        """Say what mysqlType and sqlType tell."""
        decoded = self._parse(events, LearnedTable(plan_of(declared)))
        return describe_images(events.table, decoded.images, decoded.commit_ts, declared)

    def declared(self, table: TableName, ddl: Sequence[DDLEvent]) -> Mapping[str, TypeVersions]:  # noqa: ARG002
        """Return nothing: each message tells its types."""
        return {}

    def decode(self, events: TableEvents, plan: Plan, learned: Learned | None = None) -> Decoded:
        """Parse messages and turn them to columns."""
        table = (Learned() if learned is None else learned).of_table(events.table, plan)
        if plan.fast_path:
            read = table.layouts(CanalColumns).decode(events, table, _wire_of)
            if read is not None:
                return read
        return cast_images(self._parse(events, table), events, table, _wire_of)

    def _parse(self, events: TableEvents, table: LearnedTable) -> Parsed:
        decoded, plan = Parsed.of(len(events)), table.plan
        images = decoded.images
        layouts = table.layouts(CanalColumns)
        boundaries = plan.boundaries()
        signature: tuple[Any, ...] | None = None
        for event, payload in enumerate(events.payloads):
            known = len(images.rows)
            try:
                message = parse_object(payload)
                extension = message.get("_tidb")
                if extension and ("claimCheckLocation" in extension or "onlyHandleKey" in extension):
                    message = self._whole(message, decoded)
                rows = message["data"]
                decoded.commit_ts[event] = _commit_ts(message)
                decoded.build_ts[event] = milliseconds(message.get("ts"))  # 0 before v5.4
                if not rows:
                    msg = "a row message without 'data'"
                    raise ValueError(msg)
                begun = bisect_left(boundaries, decoded.commit_ts[event] or 0) if boundaries else 0
                types, codes, keys = message.get("mysqlType"), message.get("sqlType"), message.get("pkNames")
                if (types, codes, keys, begun, tuple(rows[0])) != signature:
                    columns = _columns(message, rows)
                    if begun:
                        columns = tuple(replace(column, since=boundaries[begun - 1]) for column in columns)
                    signature = (types, codes, keys, begun, tuple(rows[0]))
                images.continue_run(columns)
                _add(images, event, message, rows, plan)
                if plan.fast_path and not plan.documents:
                    layouts.learn(payload, rows[0], begun, columns)
            except MALFORMED as error:
                images.truncate(known)
                decoded.failures[event] = parse_failure(error, "a canal-json row message").at(events.address(event))
        return decoded

    def _whole(self, message: dict[str, Any], decoded: Parsed) -> dict[str, Any]:
        """Return the message that this one stands for, as it was too large, or itself if that is lost."""
        extension = message["_tidb"]
        if extension.get("claimCheckLocation"):
            message = self.large.claimed(
                extension["claimCheckLocation"], lambda _, value: self._claimed(value, message)
            )
            decoded.claimed += 1
        elif extension.get("onlyHandleKey"):
            self.large.accept_key_only()
            decoded.key_only += 1
        return message

    def _claimed(self, value: bytes, stub: dict[str, Any]) -> dict[str, Any]:
        whole = parse_object(decompressed(value, self.codec))
        extension = whole.get("_tidb") or {}
        same = all(whole.get(member) == stub.get(member) for member in ("database", "table", "type"))
        if not same or extension.get("commitTs") != stub["_tidb"].get("commitTs"):
            msg = "it holds another event than the message says"
            raise ValueError(msg)
        if extension.get("claimCheckLocation") or extension.get("onlyHandleKey"):
            msg = "the row is not there either"
            raise ValueError(msg)
        return whole


def _sort(split: Split, chunk: Chunk, position: int, value: bytes) -> None:
    if not value:
        msg = "the value is empty"
        raise ValueError(msg)
    message = parse_object(value)
    kind = message["type"]
    if message["isDdl"]:
        table = table_name(message.get("database"), message.get("table"))
        query = readable(message.get("sql") or "")
        split.ddl.append(DDLEvent(position, 0, _commit_ts(message), table, query, readable(kind)))
    elif kind == _WATERMARK:
        split.watermarks.append(WatermarkEvent(position, 0, tso(message["_tidb"]["watermarkTs"])))
    elif kind in _ROW_TYPES:
        split.table_events(chunk, table_name(message["database"], message["table"])).append(position, 0, value)
    else:
        msg = f"message type {kind!r}"
        raise ValueError(msg)


def _commit_ts(message: dict[str, Any]) -> int | None:
    """Return the commit-ts; without the TiDB extension a lower bound of it, from `es` (ms)."""
    extension = message.get("_tidb")
    if extension and extension.get("commitTs") is not None:
        return tso(extension["commitTs"])
    event_time = milliseconds(message.get("es"))
    return None if event_time is None else event_time << 18


def _add(images: Images, event: int, message: dict[str, Any], rows: list[dict[str, Any]], plan: Plan) -> None:
    """Add the images of a message; official Canal puts several rows into one."""
    kind, olds = message["type"], message.get("old")
    for index, row in enumerate(rows):
        if type(row) is not dict:
            msg = f"a row of 'data' is {row!r}"
            raise TypeError(msg)
        if index and row.keys() != rows[0].keys():  # its columns were taken from the first
            msg = "the rows of 'data' have different columns"
            raise ValueError(msg)
        if kind == "INSERT":
            images.add(event, index, None, row, plan, update=False)
        elif kind == "DELETE":  # the row is in data; before v5.4 in old too
            images.add(event, index, row, None, plan, update=False)
        else:
            old = olds[index] if olds else None
            # `old` may hold only what changed: the old row is the new one overlaid with it (docs/wire.md, item 11).
            images.add(event, index, None if old is None else {**row, **old}, row, plan, update=True)


def _columns(message: dict[str, Any], rows: list[dict[str, Any]]) -> tuple[Column, ...]:
    types = message.get("mysqlType") or {}
    codes = message.get("sqlType") or {}
    keys = frozenset(message.get("pkNames") or ())
    return tuple(_column(name, types.get(name), codes.get(name), name in keys) for name in map(text, rows[0]))


@lru_cache(maxsize=4096)
def _column(name: str, mysql_type: str | None, code: int | None, key: bool) -> Column:  # noqa: FBT001 (a flag of the column)
    if mysql_type is None:
        return Column(name, key=key)
    type_ = parse_type(mysql_type)
    if code == _BLOB and type_.name in _TEXT_TO_BINARY:
        type_ = ColumnType(_TEXT_TO_BINARY[type_.name], length=type_.length)
    promoted = not type_.unsigned and code is not None and _PROMOTED.get(type_.name) == code
    return Column(name, replace(type_, unsigned=True) if promoted else type_, key=key, vague=promoted)


def _wire_of(column: Column, wanted: ReadField) -> tuple[Wire | None, ColumnType]:
    known = wanted.type_since(column.since)
    type_ = column.type.refined_by(known) if column.type else known or type_of(wanted.arrow)
    return KERNELS.get(type_.name), type_
