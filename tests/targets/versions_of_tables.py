"""Write every version of tables to Parquet files: `python -m tests.targets.versions_of_tables request.json`.

It runs in the environment of the engine. The request has `config` (a `sync.toml`), `tables`, `folder` and
`all_versions`; the answer, `versions.json` in that folder, has of each table the versions with their resolved ts and
file, oldest first.
"""

import json
import sys
from pathlib import Path
from typing import Any

from ticdc_source.lakehouse.session import session_of
from ticdc_source.lakehouse.sync_toml import read_toml
from ticdc_source.options.table_filter import parse_table
from ticdc_source.targets.sql_targets import open_target


def main(path: str) -> None:
    """Write the versions."""
    request: dict[str, Any] = json.loads(Path(path).read_text())
    config = read_toml(Path(request["config"]).read_text())
    spark = session_of(config)
    spark.sparkContext.setLogLevel("ERROR")
    answer: dict[str, list[dict[str, Any]]] = {}
    for number, table in enumerate(request["tables"]):  # a name may be none of a file
        copied = parse_table(table.removesuffix("__log"))
        name = config.layout.target(copied, "__log" if table.endswith("__log") else "")
        commits = open_target(spark, name).commits()[::-1]
        newest = commits[-1].version
        wanted = [one for one in commits if one.facts.resolved_ts is not None and request["all_versions"]]
        answer[table] = []
        for version, resolved_ts in [*((one.version, one.facts.resolved_ts) for one in wanted), (newest, None)]:
            file = f"{request['folder']}/{number}-{len(answer[table])}.parquet"
            frame = spark.sql(f"SELECT * FROM {name} VERSION AS OF {version}").coalesce(1)  # noqa: S608
            frame.write.mode("overwrite").parquet(file)
            answer[table].append({"version": version, "resolved_ts": resolved_ts, "file": file})
        answer[table][-1]["commits"] = len(commits)
    (Path(request["folder"]) / "versions.json").write_text(json.dumps(answer))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
