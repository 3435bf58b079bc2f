"""How simple writes each type: as text, a TIMESTAMP with its time zone (docs/wire.md, item 117); and its checksums."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from ticdc_source.kernels import numbers, strings, temporal
from ticdc_source.kernels.contract import Cast, ZonedCast
from ticdc_source.kernels.wire import Cells, Kernel, Settings, Wire, text_bytes
from ticdc_source.protocols.checksums import CORRUPTED, NUMBERED, mismatch, row_checksum, text_in_utc
from ticdc_source.protocols.messages import JSONObject
from ticdc_source.schema.model import Column
from ticdc_source.schema.types import BINARIES, TIMESTAMP, TIMESTAMP_NTZ, ColumnType

LOCAL = "Local"  # Go's name for the zone of the process: the messages do not say which one it is
_FRACTION = re.compile(r"\.\d{1,6}$")


def _instants(_type: ColumnType, settings: Settings) -> Kernel:
    """Read `{"location": …, "value": …}`: a wall-clock time and the changefeed's zone.

    If clocks are turned back, a text stands for two instants: the kernel takes the earlier (docs/wire.md, item 39).
    """
    wall_clock = temporal.dates_of_text(TIMESTAMP_NTZ, settings)

    def cast(cells: Cells) -> pa.Array:
        given = numbers.require(cells, dict)
        zones = {cell["location"] for cell in given if cell is not None}
        if len(zones) == 1 and (zone := zones.pop()) and isinstance(zone, str):  # as in all messages of a changefeed
            texts = [None if cell is None else cell["value"] for cell in given]
            return _in_zone(wall_clock(texts), settings.time_zone if zone == LOCAL else zone)
        return of_each_zone(given)

    def of_each_zone(cells: Cells) -> pa.Array:
        zones, texts = _parts(cells, settings)
        local = wall_clock(texts)
        array = pa.nulls(len(texts), TIMESTAMP)
        of_cells = pa.array(zones, pa.string())
        for zone in dict.fromkeys(zone for zone in zones if zone is not None):
            here = pc.fill_null(pc.equal(of_cells, zone), False)  # noqa: FBT003 (Arrow's)
            array = pc.if_else(here, _in_zone(local, zone), array)
        return array

    return cast


def _parts(cells: Cells, settings: Settings) -> tuple[list[str | None], list[str | None]]:
    zones: list[str | None] = []
    texts: list[str | None] = []
    for cell in numbers.require(cells, dict):
        zone = None if cell is None else cell["location"]
        if cell is not None and not (isinstance(zone, str) and isinstance(cell["value"], str)):
            raise TypeError("a TIMESTAMP whose location or value is not a string")
        zones.append(settings.time_zone if zone == LOCAL else zone)
        texts.append(None if cell is None else cell["value"])
    return zones, texts


def _in_zone(local: pa.Array, zone: str) -> pa.Array:
    if zone == "UTC":
        return local.cast(TIMESTAMP)
    return pc.assume_timezone(local, zone, ambiguous="earliest").cast(TIMESTAMP)


def _texts_in_utc(type_: ColumnType, settings: Settings) -> Kernel:
    """Return MySQL's text in UTC; zero and invalid dates, which are no instants, stay as they are."""
    run = _instants(type_, settings._replace(zero_date="null"))

    def cast(cells: Cells) -> pa.Array:
        instants: Sequence[object] = run(cells).to_pylist()
        _, texts = _parts(cells, settings)
        return pa.array(
            [
                text if text is None or instant is None else _shown(instant, text)
                for instant, text in zip(instants, texts, strict=True)
            ],
            pa.string(),
        )

    return cast


def _shown(instant: object, text: str) -> str:
    fraction = _FRACTION.search(text)
    written = temporal.datetime_text(instant, ColumnType("timestamp", length=0))  # type: ignore[arg-type]
    return written + (fraction[0] if fraction else "")


def _zoned_cast(_type: ColumnType, settings: Settings) -> Cast:
    """Return the cast of instants in UTC; columns in another zone are read as cells (`zoned_columns`)."""
    return ZonedCast(b'{"location":"UTC","value":"', zero_is_null=settings.zero_date == "null")


def zoned_columns(row: JSONObject) -> frozenset[str]:
    """Return the columns of a row with instants in another zone than UTC."""
    return frozenset(name for name, cell in row.items() if isinstance(cell, dict) and cell.get("location") != "UTC")


KERNELS: dict[str, Wire] = {**strings.TEXT_KERNELS, "timestamp": Wire(_instants, _texts_in_utc, cast=_zoned_cast)}


_REPLACED = "\ufffd"  # TiCDC's JSON has it for bytes that are not UTF-8, and the checksum is that of the bytes


def wrong_checksum(
    message: JSONObject, images: Mapping[str, object], columns: Sequence[Column], settings: Settings
) -> str | None:
    """Return what is wrong with a row's checksums; None if nothing is.

    Raises:
        ValueError and others: an image cannot be summed, or a value of it stands for several values.
    """
    checksum = message["checksum"]
    if checksum.get("corrupted"):
        return CORRUPTED
    doubt: ValueError | None = None
    for name, row in images.items():
        stated = checksum.get(name)
        if not isinstance(row, dict) or not stated:  # 0 if TiDB has computed none, and if all values are NULL
            continue
        cells = ((column.type, row.get(column.name)) for column in columns if column.type is not None)
        try:
            computed = row_checksum((type_, _value(cell, type_, settings)) for type_, cell in cells)
        except ValueError as error:
            doubt = error
            continue
        if computed != stated:
            return mismatch(f"the {name} row", stated, computed)
    if doubt is not None:
        raise doubt
    return None


def _value(cell: object, type_: ColumnType, settings: Settings) -> object:
    if cell is None:
        return None
    if type_.name == "timestamp":
        zone = cell["location"]  # type: ignore[index]  # TypeError is caught
        return text_in_utc(str(cell["value"]), settings.time_zone if zone == LOCAL else zone)  # type: ignore[index]
    if not isinstance(cell, str):
        raise TypeError(f"a value {cell!r:.40}")
    if _REPLACED in cell:
        raise ValueError("bytes that were replaced")
    if type_.name in NUMBERED:
        return int(cell)
    if type_.name == "float":  # TiDB has it in 32 bits
        return pa.scalar(float(cell), pa.float32()).as_py()
    if type_.name == "double":
        return float(cell)
    return base64.b64decode(cell) if type_.name in BINARIES else text_bytes(cell)
