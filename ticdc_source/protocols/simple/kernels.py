"""How simple writes each type: as text, a TIMESTAMP with its time zone (docs/wire.md, item 117)."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from ticdc_source.kernels import numbers, strings, temporal
from ticdc_source.kernels.wire import Cells, Kernel, Settings, Wire
from ticdc_source.schema.types import BINARIES, INTEGERS, TEXTS, TIMESTAMP, TIMESTAMP_NTZ, ColumnType

__all__ = ["KERNELS"]

_LOCAL = "Local"  # Go's name for the zone of the process: the messages do not say which one it is
_FRACTION = re.compile(r"\.\d{1,6}$")


def _instants(_type: ColumnType, settings: Settings) -> Kernel:
    """Read `{"location": …, "value": …}`: a wall-clock time and its zone, which is the changefeed's.

    When a zone turns its clocks back, two instants have one text: the kernel takes the earlier (docs/wire.md, item 39).
    """
    wall_clock = temporal.dates_of_text(TIMESTAMP_NTZ, settings)

    def cast(cells: Cells) -> pa.Array:
        zones, texts = _parts(cells, settings)
        local = wall_clock(texts)
        parts = {zone: _in_zone(local, zone) for zone in dict.fromkeys(zones) if zone is not None}
        if len(parts) == 1:
            return next(iter(parts.values()))
        array = pa.nulls(len(texts), TIMESTAMP)
        of_cells = pa.array(zones, pa.string())
        for zone, instants in parts.items():
            array = pc.if_else(pc.fill_null(pc.equal(of_cells, zone), False), instants, array)  # noqa: FBT003 (Arrow's)
        return array

    return cast


def _parts(cells: Cells, settings: Settings) -> tuple[list[str | None], list[str | None]]:
    """Return the zones and the texts of cells.

    Raises:
        TypeError: a cell is no object.
        KeyError: it lacks a member.
    """
    zones: list[str | None] = []
    texts: list[str | None] = []
    for cell in numbers.require(cells, dict):
        zone = None if cell is None else cell["location"]
        zones.append(settings.time_zone if zone == _LOCAL else zone)
        texts.append(None if cell is None else cell["value"])
    return zones, texts


def _in_zone(local: pa.Array, zone: str) -> pa.Array:
    if zone == "UTC":
        return local.cast(TIMESTAMP)
    return pc.assume_timezone(local, zone, ambiguous="earliest").cast(TIMESTAMP)


def _texts_in_utc(type_: ColumnType, settings: Settings) -> Kernel:
    """Return MySQL's text in UTC; zero and invalid dates, which have no instant, stay as they are."""
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


KERNELS: dict[str, Wire] = {
    **dict.fromkeys(INTEGERS, numbers.INTEGER_TEXT),
    "decimal": numbers.DECIMAL_TEXT,
    "year": numbers.YEAR_TEXT,
    "float": numbers.FLOAT_TEXT,
    "double": numbers.FLOAT_TEXT,
    "bit": numbers.BIT_TEXT,
    "date": temporal.DATE_TEXT,
    "datetime": temporal.DATETIME_TEXT,
    "timestamp": Wire(_instants, _texts_in_utc),
    "time": temporal.TIME_TEXT,
    **dict.fromkeys(TEXTS, strings.TEXT),
    **dict.fromkeys(BINARIES, strings.BASE64_BINARY),
    "enum": strings.ENUM_TEXT,
    "set": strings.SET_TEXT,
    "json": strings.TEXT,
    "vector": strings.VECTOR_TEXT,
}
