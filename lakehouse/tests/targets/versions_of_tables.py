"""Write every version of tables to Parquet files: `python -m lakehouse.tests.targets.versions_of_tables request.json`.

It runs in the environment of the engine. The request has `config` (a `sync.toml`), `tables`, `folder`,
`all_versions`, and as `states` how many moments are asked of `as_of`. The answer, `versions.json` in that folder, has
of each table the versions with their resolved ts and file, oldest first; and of each moment the commit-ts and the files
of all tables, or why there is none.
"""

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from ticdc_lakehouse.syncs.config import SyncConfig
from ticdc_lakehouse.syncs.session_and_catalog import session_of
from ticdc_lakehouse.syncs.sync_toml import read_toml
from ticdc_lakehouse.syncs.time_travel import as_of
from ticdc_lakehouse.targets.opening import open_target
from ticdc_source.errors import TiCDCSourceError
from ticdc_source.options.topics import parse_table


def main(path: str) -> None:
    request: dict[str, Any] = json.loads(Path(path).read_text())
    config = read_toml(Path(request["config"]).read_text())
    spark = session_of(config)
    spark.sparkContext.setLogLevel("ERROR")
    answer: dict[str, list[dict[str, Any]]] = {}
    known: set[int] = set()
    for number, table in enumerate(request["tables"]):  # a name may be none of a file
        copied = parse_table(table.removesuffix("__log"))
        name = config.layout.target(copied, "__log" if table.endswith("__log") else "")
        commits = open_target(spark, name).commits()[::-1]
        newest = commits[-1].version
        known |= {one.facts.resolved_ts for one in commits if one.facts.resolved_ts is not None}
        wanted = [one for one in commits if one.facts.resolved_ts is not None and request["all_versions"]]
        answer[table] = []
        for version, resolved_ts in [*((one.version, one.facts.resolved_ts) for one in wanted), (newest, None)]:
            file = f"{request['folder']}/{number}-{len(answer[table])}.parquet"
            frame = spark.sql(f"SELECT * FROM {name} VERSION AS OF {version}").coalesce(1)  # noqa: S608
            frame.write.mode("overwrite").parquet(file)
            answer[table].append({"version": version, "resolved_ts": resolved_ts, "file": file})
        answer[table][-1]["commits"] = len(commits)
    whole = {"tables": answer, "states": states(spark, config, Path(request["folder"]), sorted(known), request)}
    (Path(request["folder"]) / "versions.json").write_text(json.dumps(whole))
    spark.stop()


def states(
    spark: SparkSession, config: SyncConfig, folder: Path, known: list[int], request: dict[str, Any]
) -> list[dict[str, Any]]:
    count = request.get("states", 0)
    chosen = sorted({*known[:: max(1, len(known) // count)], known[-1] + 1}) if count else []
    answers: list[dict[str, Any]] = []
    for number, moment in enumerate(chosen):
        try:
            state = as_of(spark, config, moment)
        except TiCDCSourceError as error:
            answers.append({"moment": moment, "error": str(error)})
            continue
        files = {}
        for table, rows in enumerate(sorted(state.tables)):
            files[rows] = f"{folder}/state-{number}-{table}.parquet"
            state.tables[rows].coalesce(1).write.mode("overwrite").parquet(files[rows])
        answers.append({"moment": moment, "commit_ts": state.commit_ts, "files": files})
    return answers


if __name__ == "__main__":
    main(sys.argv[1])
