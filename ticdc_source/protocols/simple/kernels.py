"""How simple writes each type: as text, a TIMESTAMP with its time zone (docs/wire.md, item 117)."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from ticdc_source.kernels import numbers, temporal
from ticdc_source.kernels.text import TEXT_KERNELS
from ticdc_source.kernels.wire import Cells, Kernel, Settings, Wire
from ticdc_source.schema.types import TIMESTAMP, TIMESTAMP_NTZ, ColumnType

__all__ = ["KERNELS", "LOCAL"]

LOCAL = "Local"  # Go's name for the zone of the process: the messages do not say which one it is
_FRACTION = re.compile(r"\.\d{1,6}$")


def _instants(_type: ColumnType, settings: Settings) -> Kernel:
    """Read `{"location": …, "value": …}`: a wall-clock time and its zone, which is the changefeed's.

    When a zone turns its clocks back, two instants have one text: the kernel takes the earlier (docs/wire.md, item 39).
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
    """Return the zones and the texts of cells.

    Raises:
        TypeError: a cell is no object.
        KeyError: it lacks a member.
    """
    zones: list[str | None] = []
    texts: list[str | None] = []
    for cell in numbers.require(cells, dict):
        zone = None if cell is None else cell["location"]
        if cell is not None and not (isinstance(zone, str) and isinstance(cell["value"], str)):
            msg = "a TIMESTAMP whose location or value is no text"
            raise TypeError(msg)
        zones.append(settings.time_zone if zone == LOCAL else zone)
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


KERNELS: dict[str, Wire] = {**TEXT_KERNELS, "timestamp": Wire(_instants, _texts_in_utc)}
