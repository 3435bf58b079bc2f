"""The records of tables that are set aside: what is lost is noticed, and what is used is removed."""

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ticdc_lakehouse.syncs.kept_records import Bounds, KeptRecords
from ticdc_source.errors import CheckpointError

pytestmark = pytest.mark.spark
SCHEMA = "_topic string, _partition int, _offset bigint, _tables array<string>, _event_types array<string>"


@pytest.mark.slow("eight jobs of Spark on files")
def test_kept_records_that_are_lost_in_part(quick: SparkSession, tmp_path: Path) -> None:
    """Without the micro-batch in which the table was set aside nothing is replayed, as without the whole folder."""
    kept = KeptRecords(quick, str(tmp_path), "shop.e")
    for number in (3, 5):
        records = quick.createDataFrame([("t", 0, number, ["shop.E"], ["row"])], SCHEMA).coalesce(1)
        kept.keep(number, records.where, Bounds())
    (folder,) = (tmp_path / "aside").iterdir()
    assert [part.last for part in kept.between(3, 9, begins=True)] == [5]

    shutil.rmtree(folder / "batch=3")
    with pytest.raises(CheckpointError, match="lacks the kept records of micro-batch 3, since which"):
        kept.between(3, 9, begins=True)
    assert [part.last for part in kept.between(4, 9)] == [5]  # the target has micro-batch 3

    kept.remove()
    assert not folder.exists()
    with pytest.raises(CheckpointError, match="lacks the kept records of micro-batch 3"):
        kept.between(3, 9)
