"""The tour runs as a newcomer starts it, and its pictures show what is in the messages."""

import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from pathlib import Path
from statistics import median
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from examples.data import read_messages, read_truth
from examples.local_kafka.broker import BOOTSTRAP_VARIABLE
from examples.tour.__main__ import PROTOCOL, TABLE, records
from examples.tour.page import SECTIONS
from tests.fixtures import Kafka
from tests.support.paths import ROOT

SECONDS = 400  # 60 on two idle cores
PICTURES = {section.picture for section in SECTIONS if section.picture}
PAGE = ROOT / "docs/tour.md"


@pytest.fixture(scope="module")
def tour(broker: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the tour wrote, with its pictures as files in `images`."""
    pytest.importorskip("matplotlib", reason="in the dependency group 'tour'")
    folder = tmp_path_factory.mktemp("tour")
    done = subprocess.run(
        [sys.executable, "-m", "examples.tour", "--output", str(folder), "--images", str(folder / "images")],
        cwd=ROOT,
        env={**os.environ, BOOTSTRAP_VARIABLE: broker.bootstrap_servers},
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def messages() -> Iterator[tuple[int, datetime, dict[str, Any]]]:
    """Yield partition, Kafka's timestamp and JSON of each message of the demo, read without the package."""
    for partition, _, value, _, timestamp in records(read_messages(PROTOCOL)):
        yield partition, moment(timestamp or 0), json.loads(value or b"")


def moment(milliseconds: int) -> datetime:
    """Return a time in UTC."""
    return datetime.fromtimestamp(milliseconds // 1000, timezone.utc).replace(microsecond=milliseconds % 1000 * 1000)


def second(time: datetime) -> str:
    """Return the second of a time, as the answers have it."""
    return shown(time.replace(microsecond=0))


def shown(time: datetime) -> str:
    """Return a time as the answers have it."""
    return str(time)


def kinds(message: Mapping[str, Any]) -> list[str]:
    """Return the kinds of the events in a message."""
    if message["isDdl"]:
        return ["ddl"]
    if message["type"] == "TIDB_WATERMARK":
        return ["watermark"]
    return [message["type"].lower()] * len(message["data"])


@pytest.mark.long("a JVM of its own")
@pytest.mark.spark
def test_the_pictures_show_what_is_in_the_messages(tour: Path) -> None:
    """Columns, a row's images, events, delays and watermark lags are those that plain JSON and SQL give."""
    answers = json.loads((tour / "answers.json").read_text(encoding="utf-8"))
    truth = read_truth()
    counts: Counter[tuple[str, str]] = Counter()
    delays: dict[str, list[float]] = {}
    lags: list[tuple[int, str, float | None, float]] = []
    newest: dict[int, int] = {}
    for partition, arrived, message in messages():
        for kind in kinds(message):
            counts[second(moment(message["es"])), kind] += 1
            if kind == "watermark":
                now = round(arrived.timestamp() * 1000)
                before = (now - newest[partition]) / 1000 if partition in newest else None
                newest[partition] = max(newest.get(partition, 0), message["es"])
                lags.append((partition, shown(arrived), before, (now - newest[partition]) / 1000))
            elif kind != "ddl":
                late = round((arrived - moment(message["es"])).total_seconds(), 3)
                delays.setdefault(second(arrived), []).append(late)

    assert {column["name"]: column["mysql"] for column in answers["columns"]} == {
        name: re.sub(r"bigint\(20\)", "bigint", mysql) for name, mysql in truth[TABLE].columns.items()
    }
    assert [column["name"] for column in answers["columns"] if column["key"]] == truth[TABLE].key
    assert {(one["second"], one["kind"]): one["events"] for one in answers["counts"]} == counts
    assert sum(one["events"] for one in answers["counts"] if one["kind"] in {"insert", "update", "delete"}) == sum(
        sum(table.changes.values()) for table in truth.values()
    )
    assert [one["query"] for one in answers["ddl"]] == [one["sql"] for *_, one in messages() if one["isDdl"]]
    assert [(one["second"], one["largest"]) for one in answers["delays"]] == [
        (when, max(late)) for when, late in sorted(delays.items())
    ]
    assert [one["median"] for one in answers["delays"]] == pytest.approx(
        [median(late) for _, late in sorted(delays.items())]
    )
    found = [(one["partition"], one["arrived"], one["before"], one["after"]) for one in answers["watermarks"]]
    assert found == sorted(lags, key=lambda lag: lag[0])
    assert max(one["largest"] for one in answers["delays"]) > 3, "the restart of TiCDC is not to be seen"
    assert_history(answers)


def assert_history(answers: Mapping[str, Any]) -> None:
    """Compare the images of the row that the tour shows with its messages, without those that TiCDC sent twice."""
    images = answers["images"]
    key = images[0]["values"]["order_id"]
    history: dict[tuple[int, str], dict[str, Any]] = {}
    for *_, message in messages():
        if (message["database"], message["table"]) == tuple(TABLE.split(".")):
            for row in message["data"] or ():
                if row["order_id"] == key:
                    history[message["_tidb"]["commitTs"], message["type"].lower()] = row
    expected = sorted(history.items(), key=lambda item: item[0][0])
    assert [image["change_type"] for image in images] == [kind for (_, kind), _ in expected]
    assert [image["committed"] for image in images] == [shown(moment(ts >> 18)) for (ts, _), _ in expected]
    for column in ("order_id", "customer_id", "status", "total", "currency", "note"):
        assert [image["values"][column] for image in images] == [row[column] for _, row in expected]
    assert len(images) > 8


@pytest.mark.long("a JVM of its own")
@pytest.mark.spark
def test_the_page_has_all_pictures(tour: Path) -> None:
    """The page is one file with every picture, each of them well-formed SVG, also as a file."""
    page = (tour / "index.html").read_text(encoding="utf-8")

    assert 'id="schema"' in page
    for name in PICTURES:
        _, _, rest = page.partition(f'<figure id="{name}">')
        inside = ET.fromstring(rest.partition("</figure>")[0])  # noqa: S314 (made by the tour)
        alone = ET.parse(tour / "images" / f"{name}.svg").getroot()  # noqa: S314
        assert inside.tag == alone.tag == "{http://www.w3.org/2000/svg}svg"
        assert len(list(alone.iter("{http://www.w3.org/2000/svg}path"))) > 10
    assert "src=" not in page
    assert 'href="http' not in page


def test_the_documentation_has_all_pictures_and_they_are_small() -> None:
    """Every picture of the tour is on its page; together they are smaller than 300 kB."""
    folder = ROOT / "docs/images/tour"
    files = {path.name: path.stat().st_size for path in folder.iterdir()}
    text = PAGE.read_text(encoding="utf-8")

    assert files.keys() == {f"{name}.svg" for name in PICTURES}
    assert all(f"(images/tour/{name})" in text for name in files)
    assert sum(files.values()) < 300_000
