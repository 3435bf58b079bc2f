"""A sync that heals, and audits of its tables while it runs. Needs no pytest.

    python -m lakehouse.tests.tidb.heal SYNC_TOML

Each line of its input is a request in JSON, and each line of its output the answer: `{"tables": [...]}` audits tables,
and `{}` says how they are.
"""

import json
import sys
import threading
from dataclasses import asdict
from pathlib import Path

from pyspark.sql import SparkSession

from ticdc_lakehouse import SyncConfig, sync
from ticdc_lakehouse.cli.audit import audit_sync
from ticdc_lakehouse.errors import TargetError
from ticdc_lakehouse.syncs.reports import BatchReport
from ticdc_lakehouse.syncs.session_and_catalog import session_of
from ticdc_lakehouse.syncs.status import TableStatus, statuses_of
from ticdc_lakehouse.syncs.sync_toml import read_toml


def main(file: str) -> None:
    """Answer until the input ends."""
    config = read_toml(Path(file).read_text(encoding="utf-8"), folder=Path(file).parent)
    spark = session_of(config)
    ended: list[str] = []

    def show(report: BatchReport) -> None:
        sys.stderr.write(f"{report.as_json()}\n")

    def run() -> None:
        try:
            sync(spark, config, on_batch=show)
        except BaseException as error:  # noqa: BLE001 (the test shows it)
            ended.append(repr(error))

    threading.Thread(target=run, daemon=True).start()
    for line in sys.stdin:
        sys.stdout.write(f"{json.dumps(answer(spark, config, json.loads(line), ended))}\n")
        sys.stdout.flush()


def answer(spark: SparkSession, config: SyncConfig, asked: dict[str, object], ended: list[str]) -> object:
    if ended:
        return {"ended": ended}
    match asked:
        case {"tables": list(names)}:
            return [each.as_json() for each in audit_sync(config, tables=names).tables]
        case _:
            try:
                return {each.table_name: told(each) for each in statuses_of(spark, config)}
            except TargetError:  # before the first micro-batch there is no table of statuses
                return {}


def told(status: TableStatus) -> dict[str, object]:
    return {"state": status.state, "reason": status.reason, "pauses": [asdict(each) for each in status.pauses]}


if __name__ == "__main__":
    main(sys.argv[1])
