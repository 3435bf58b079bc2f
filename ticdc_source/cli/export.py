"""Write the rows of a batch read to a file, without Spark."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa

from ticdc_source.cli.arguments import add_connection, argument, file_path, options_of
from ticdc_source.cli.screen import output
from ticdc_source.errors import OptionError, counted
from ticdc_source.options.parsers import ParseError
from ticdc_source.planning.batch_reads import read_arrow

SUMMARY = "write the rows of a table, or all events, to a Parquet or Arrow file"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_connection(parser, required=False)
    parser.add_argument(
        "--to", type=argument(_file), required=True, metavar="FILE", help=f"output file: {' or '.join(_WRITERS)}"
    )


def _file(text: str) -> Path:
    path = file_path(text)
    if path.suffix not in _WRITERS or "://" in text:
        raise ParseError(f"expected the path of a local file that ends in {' or '.join(_WRITERS)}")
    return path


def run(arguments: argparse.Namespace) -> int:
    """Write the file under a temporary name, and rename it when it is complete."""
    to: Path = arguments.to
    if not to.parent.is_dir():
        raise OptionError(f"--to {to}: there is no folder {to.parent}")
    given = options_of(arguments)
    if not {"subscribe", "subscribepattern", "assign", "path", "snapshot"} & {name.lower() for name in given}:
        raise OptionError(
            "Specify what to read: --bootstrap-servers and --subscribe, or --conf path=… or snapshot=only"
        )
    part = to.with_name(f".{to.name}.part")
    rows = 0
    try:
        with read_arrow(given) as reader:
            with _writing(to):
                writer = _WRITERS[to.suffix](part, reader.schema)
            try:
                for batch in reader:
                    with _writing(to):
                        writer.write_batch(batch)
                    rows += batch.num_rows
            except BaseException:
                with suppress(OSError):  # a full disk does not take the end of the file either
                    writer.close()
                raise
            with _writing(to):
                writer.close()
                part.replace(to)
    finally:
        part.unlink(missing_ok=True)
    output().print(f"{to}: {counted(rows, 'row')}")
    return 0


@contextmanager
def _writing(to: Path) -> Iterator[None]:
    """Name the file in write errors."""
    try:
        yield
    except OSError as error:
        raise OptionError(f"--to {to}: {error.strerror or error}") from None


def _parquet(path: Path, schema: pa.Schema) -> Any:  # noqa: ANN401 (pyarrow has no types)
    import pyarrow.parquet as pq  # noqa: PLC0415 (it takes a tenth of a second)

    return pq.ParquetWriter(path, schema)


_WRITERS: dict[str, Callable[[Path, pa.Schema], Any]] = {".parquet": _parquet, ".arrow": pa.ipc.new_file}
