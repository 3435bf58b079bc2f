"""Runs random stories on a real engine, all in one session. Needs no pytest.

    python -m lakehouse.tests.syncs.story_scenario ENGINE FOLDER SEED COUNT

It prints a line of JSON: the seeds whose copy had the rows of SQL in the end.
"""

import json
import sys
from pathlib import Path

from lakehouse.tests.engines.engines import ENGINES
from lakehouse.tests.syncs.memory_sync import MemorySync
from lakehouse.tests.syncs.stories import EngineLake, Story


def main(engine: str, folder: str, seed: str, count: str) -> None:
    kind, done = ENGINES[engine].name, []
    with ENGINES[engine].session(Path(folder)) as spark:
        for number in range(int(seed), int(seed) + int(count)):
            print(f"TICDC_SEED={number}", flush=True)  # noqa: T201 (to repeat it)
            path = Path(folder) / str(number)
            place = {"path": f"{path}/lake"} if kind == "delta" else {"path": None, "catalog": f"lake.s{number}"}
            lake = EngineLake(spark, kind)
            sync = MemorySync(lake, path / "checkpoint", format=kind, **place)
            Story(number, sync, path).run()
            done.append(number)
    sys.stdout.write(f"{json.dumps({'equal': done})}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
