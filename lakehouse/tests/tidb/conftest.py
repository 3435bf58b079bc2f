"""A session of a running TiDB, and the type matrix in it."""

from collections.abc import Iterator

import pytest

from tests.tidb.matrix import Matrix, filled
from tests.tidb.server import TiDB
from tests.tidb.snapshots import text_session
from tests.tidb.sql import SAFE_POINT, Session


@pytest.fixture(scope="session")
def sql(tidb: TiDB) -> Iterator[Session]:
    """A session of root, which may read the past."""
    with text_session(tidb) as opened:
        opened.run(SAFE_POINT.format("20200101-00:00:00 +0000"))
        yield opened


@pytest.fixture(scope="session")
def matrix(sql: Session) -> Matrix:
    """The type matrix, after the inserts, the updates and the deletes of the corpus."""
    return filled(sql)
