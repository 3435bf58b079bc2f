"""Read captured messages of each protocol with the installed package, as a program in another environment.

    python -m tests.support.read_captured FOLDER NATIVE_CODE

It writes an Arrow file for each table into the folder. The last line of its output is a report, in JSON.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyarrow import feather

import ticdc_source
from tests.support.captured import load, whole
from tests.support.truth import tables_with_rows
from ticdc_source.kernels.native import native
from ticdc_source.planning.load import load_schema

_SCENARIOS = ("open-protocol.default", "canal-json.tidb-extension", "debezium.default")


def tables(native_code: str) -> Iterator[tuple[str, pa.Table]]:
    """Yield the rows of each table of the scenarios, with a name; `native_code` is the option."""
    for scenario in _SCENARIOS:
        captured = load(f"{scenario}.ops")
        for database, table in tables_with_rows(captured):
            rows = captured.only(database, table).read(
                sizes=whole, tables=f"`{database}`.`{table}`", includeMetadata="all", nativeCode=native_code
            )
            yield f"{scenario}.{database}.{table}", rows


def main(folder: Path, native_code: str) -> None:
    """Plan two reads, whose warnings the caller sees, and read the tables."""
    options = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t", "outputFormat": "event"}
    for _ in range(2):
        load_schema({**options, "nativeCode": native_code})
    for name, rows in tables(native_code):
        feather.write_feather(rows, folder / f"{name}.arrow")
    report = {"package": ticdc_source.__file__, "native": native is not None}
    print(json.dumps(report))  # noqa: T201 (to the parent)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
