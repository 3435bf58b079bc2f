"""Fetch the jars of an engine as the page for machines without a network does, or use them and fetch none.

    python -m lakehouse.tests.engines.engine_jars fetch|use ENGINE FOLDER

Needs PySpark and the dependencies of the package, but no pytest. Its last line of output is a report in JSON.
"""

import argparse
import json
import os
import re
from pathlib import Path

from pyspark.sql import SparkSession

from tests.support.paths import ROOT
from tests.versions.decoding import equal
from ticdc_lakehouse.syncs.session_and_catalog import package_of
from ticdc_lakehouse.targets.opening import ENGINES

PAGE = ROOT / "lakehouse/docs/without-network.md"


def coordinates(jar: Path) -> str:
    """Return the Maven coordinates of a jar, from the name that Ivy gives it: group_artifact-version.jar."""
    found = re.fullmatch(r"([^_]+)_(.+?)-(\d[^_]*)", jar.stem)
    equal(found is not None, True)
    return ":".join(found.groups()) if found else ""


def fetch(engine: str, folder: Path) -> list[str]:
    """Run the code of the page, in a folder, with the package of an engine for this PySpark; return what it fetched."""
    code = re.search(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    text = code[1] if code else ""
    packages = ENGINES["delta"].packages["4.1"]
    equal(text.count(packages), 1)
    (folder / "bundle").mkdir()
    os.chdir(folder)
    exec(text.replace(packages, package_of(engine)))  # noqa: S102 (the page's)
    return sorted(map(coordinates, Path("bundle/jars").glob("*.jar")))


def use(engine: str, folder: Path) -> int:
    """Write and read a table in a session that has the jars, and nowhere to fetch others from."""
    os.environ["DEFAULT_ARTIFACT_REPOSITORY"] = (folder / "nothing").as_uri()
    settings = {
        **ENGINES[engine].session,
        "spark.jars": str(folder / "bundle" / "jars" / "*.jar"),
        "spark.jars.ivy": str(folder / "ivy"),
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "hadoop",
        "spark.sql.catalog.lake.warehouse": str(folder / "lake"),
        "spark.ui.enabled": "false",
    }
    spark = SparkSession.builder.master("local[1]").config(map={**settings}).getOrCreate()
    table = f"delta.`{folder / 'table'}`" if engine == "delta" else "lake.db.t"
    spark.sql(f"CREATE TABLE {table} (id int) USING {engine}")
    spark.range(1, 3).selectExpr("CAST(id AS int) AS id").writeTo(table).append()
    spark.sql(f"MERGE INTO {table} t USING (SELECT 1 id) s ON t.id = s.id WHEN MATCHED THEN DELETE")
    rows = spark.table(table).count()
    spark.stop()
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m lakehouse.tests.engines.engine_jars")
    parser.add_argument("what", choices=("fetch", "use"))
    parser.add_argument("engine", help="delta or iceberg")
    parser.add_argument("folder", type=Path, help="where the jars are")
    arguments = parser.parse_args()
    folder: Path = arguments.folder
    if arguments.what == "fetch":
        report: object = fetch(arguments.engine, folder)
    else:
        report = use(arguments.engine, folder)
    print(json.dumps({arguments.what: report}))  # noqa: T201


if __name__ == "__main__":
    main()
