"""The paths of a storage sink (pingcap/ticdc pkg/cloudstorage/path_key.go and generator.go).

    metadata                                                        the checkpoint-ts
    <database>/meta/schema_<version>_<checksum>.json                DDL of a database
    <database>/<table>/meta/schema_<version>_<checksum>.json        a version of a table
    <database>/<table>/<version>[/<partition>][/<date>]/            a data directory, with
        meta/CDC.index                                              the name of its last whole file
        CDC<number>.<json|csv>                                      rows

With `use-table-id-as-path`, `<table-id>` stands for `<database>/<table>`. If several nodes write one table, each has
files of its own in a directory: `CDC_<dispatcher>_<number>.<json|csv>` and `meta/CDC_<dispatcher>.index`. TiCDC before
v6.5.1 writes `<database>/<table>/<version>/schema.json`, and the index file beside the data files.

A schema file has DDL, and for a table the columns of one version.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_LEAST_DIGITS = 15  # of a version, which is a TSO; a year, a partition and the id of a table have fewer
_DATE = re.compile(r"(?:19|20)\d\d-\d\d(?:-\d\d)?")  # a year alone may be the id of a partition
_DATA = re.compile(r"(?P<directory>.+)/(?P<stem>CDC(?:_.+_)?)(?P<number>\d{6,20})(?P<extension>\.\w+)", re.DOTALL)
_INDEX = re.compile(r"(?P<directory>.+?)/(?:meta/)?(?P<stem>CDC(?:_.+)?)\.index", re.DOTALL)
_SCHEMA = re.compile(r".+/meta/schema_(?P<version>\d+)_\d{10}\.json|.+/(?P<old>\d+)/schema\.json", re.DOTALL)
_PATTERN = re.compile(r"(?P<directory>.+)/(?P<stem>CDC(?:_.+_)?)%d(?P<extension>\.\w+)", re.DOTALL)
_MOST_BEHIND = 2  # a partition and a date
MOST_FILES = (1 << 31) - 1  # the number of a file is the partition of its rows
WIDTH = 6  # the digits of a number, unless file-index-width is larger


class DataDirectory(NamedTuple):
    """The rows of a data directory.

    Attributes:
        owner: the path of the table, and of the partition if partitions have directories.
        table: the database and the table; None if the path does not tell, as with `use-table-id-as-path`.
        date: the day or month of the rows; "" without one.
    """

    owner: str
    table: tuple[str, str] | None
    version: int
    date: str


class DataFile(NamedTuple):
    """A file with rows: the pattern of its path, with `%d` for the number, and the number."""

    pattern: str
    number: int


class IndexFile(NamedTuple):
    """An index file: its directory, and the prefix of the names that it counts: `CDC` or `CDC_<dispatcher>_`."""

    directory: str
    stem: str


def parse_path(path: str) -> DataFile | IndexFile | None:
    """Parse a path relative to the changefeed's folder; None for other files."""
    if match := _DATA.fullmatch(path):
        number = match["number"]
        pattern = f"{match['directory']}/{match['stem']}%d{match['extension']}"
        return DataFile(pattern, int(number)) if int(number) <= MOST_FILES and directory_of(pattern) else None
    if match := _INDEX.fullmatch(path):
        stem = match["stem"]
        return IndexFile(match["directory"], stem if stem == "CDC" else f"{stem}_")
    return None


def extension_of(path: str) -> str:
    return "." + path.rpartition(".")[2]


def is_schema_file(path: str) -> bool:
    return _SCHEMA.fullmatch(path) is not None


def data_file_name(pattern: str, number: int, width: int = WIDTH) -> str:
    """The path of one file of a pattern; its number has at least `width` digits."""
    head, _, extension = pattern.rpartition("%d")
    return f"{head}{number:0{width}d}{extension}"


def index_of(pattern: str) -> IndexFile:
    """The index file that names the last complete file of a pattern."""
    directory, _, name = pattern.rpartition("/")
    return IndexFile(directory, name.rpartition("%d")[0])


def directory_of(pattern: str) -> DataDirectory | None:
    """Parse the path of a data directory; None if it is not one."""
    match = _PATTERN.fullmatch(pattern)
    parts = [] if match is None else match["directory"].split("/")
    # Several parts may look like a version, even a table's name. It is the last one followed by at most a partition and
    # a date.
    versions = [at for at, part in enumerate(parts) if at and part.isdecimal() and len(part) >= _LEAST_DIGITS]
    at = versions[-1] if versions else None
    if at is None or len(parts) - at > _MOST_BEHIND + 1:
        return None
    # A table name may have slashes. Go's path.Join resolves `..` in names, so database and table may be one part; then
    # the table is unknown.
    table = (parts[0], "/".join(parts[1:at])) if at > 1 else None
    rest = parts[at + 1 :]
    date = rest.pop() if rest and _DATE.fullmatch(rest[-1]) else ""
    return DataDirectory("/".join([*parts[:at], *rest]), table, int(parts[at]), date)


def order_of(topic: str) -> tuple[int, int, str, str]:
    """The sort key of files in TiCDC's order of writing: a schema file before its rows.

    Args:
        topic: the path of a schema file, or the pattern of data files; `metadata` is the last.
    """
    match = _SCHEMA.fullmatch(topic)
    if match is not None:
        return int(match["version"] or match["old"]), 0, "", topic
    place = directory_of(topic)
    return (1 << 64, 0, "", topic) if place is None else (place.version, 1, place.date, topic)
