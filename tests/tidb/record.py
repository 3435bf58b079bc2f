"""Records what a real TiDB says when a table of every type is read: `tests/data/tidb.conversation.xz`.

    python -m tests.tidb.record

The table has random values, from a seed. Its rows are recorded too, as they were read; lakehouse/tests/tidb and
tests/sources/tidb compare such rows with SQL.
"""

import random
import sys
import tempfile
from pathlib import Path

from tests.support.paths import ROOT
from tests.tidb.conversation import Conversation, recorded
from tests.tidb.random_rows import KINDS, literal
from tests.tidb.server import running
from tests.tidb.snapshots import address, rows_of
from ticdc_source.options.options import Options
from ticdc_source.sources.tidb.client import Session

PATH = ROOT / "tests" / "data" / "tidb.conversation.xz"
TABLE = "past.kinds"
ROWS, ROWS_PER_RANGE = 70, 30
SAFE_POINT = (
    "REPLACE INTO mysql.tidb (variable_name, variable_value, comment) "
    "VALUES ('tikv_gc_safe_point', '20200101-00:00:00 +0000', '')"
)


def statements(rows: int, seed: int) -> list[str]:
    """Return what makes a table with a column of each kind and a composite key."""
    rng = random.Random(seed)
    columns = ", ".join(f"`c {number}` {kind} NULL" for number, kind in enumerate(KINDS))
    key = "a VARCHAR(9) COLLATE utf8mb4_general_ci, b DECIMAL(10,2), PRIMARY KEY (a, b) CLUSTERED"
    values = (
        f"('{'aBÉ中'[number % 4]}', {number}.5, {', '.join(literal(kind, rng) for kind in KINDS)})"
        for number in range(rows)
    )
    return [
        SAFE_POINT,
        "CREATE DATABASE IF NOT EXISTS past",
        f"CREATE TABLE {TABLE} ({key}, {columns})",
        *(f"INSERT INTO {TABLE} VALUES {row}" for row in values),  # noqa: S608 (a test's own)
    ]


def main() -> None:
    """Write the file."""
    conversation = Conversation()
    with tempfile.TemporaryDirectory() as folder, running(Path(folder)) as server:
        with Session(Options.of(address(server.host, server.port))) as session:
            session.rows("SET sql_mode = 'ALLOW_INVALID_DATES'")
            for statement in statements(ROWS, seed=20261128):
                session.rows(statement)
            at = session.now()
            session.rows(f"UPDATE {TABLE} SET `c 0` = 1")  # noqa: S608 (a test's own)
        with recorded(server.host, server.port, conversation) as port:
            given = address("127.0.0.1", port, tables=TABLE, snapshot_at=str(at), tidb_ssl_mode="disabled")
            given["snapshot.rowsPerRange"] = str(ROWS_PER_RANGE)
            rows = rows_of(given)
    conversation.facts = {"at": at, "rows": [repr(row) for row in rows.to_pylist()]}
    conversation.save(PATH)
    sys.stdout.write(f"{PATH.relative_to(ROOT)}: {rows.num_rows} rows, {PATH.stat().st_size} bytes\n")


if __name__ == "__main__":
    main()
