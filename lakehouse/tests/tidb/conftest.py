"""A session of a running TiDB, and the type matrix in it."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.tidb.matrix import Matrix, filled
from tests.tidb.server import TiDB
from tests.tidb.sql import SAFE_POINT, Session, session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def sql(spark: "SparkSession", tidb: TiDB) -> Iterator[Session]:
    """A session of root, which may read the past."""
    with session(spark, tidb.jdbc_url) as opened:
        opened.run(SAFE_POINT.format("20200101-00:00:00 +0000"))
        yield opened


@pytest.fixture(scope="session")
def matrix(sql: Session) -> Matrix:
    """The type matrix, after the inserts, the updates and the deletes of the corpus."""
    return filled(sql)
