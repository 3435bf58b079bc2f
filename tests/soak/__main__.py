"""Soak: a producer, three brokers and a Spark program under faults; at the end, what must hold is compared.

`make soak` runs it for three minutes; `make soak ARGS="--minutes 30 --seed 7"` for thirty. The same seed repeats the
messages and the schedule of the faults. Three topics have the messages of the three protocols: inserts, updates,
deletes and changes of keys in transactions of some rows, stretches that are sent again, watermarks, columns that are
added, and an int that becomes a bigint. A stream of each topic writes Parquet files. Brokers are killed and restarted,
Python workers and the whole program are killed, and the program continues from the checkpoints. What must hold:

* Kafka has every message that it acknowledged;
* each row of a topic is in the files once, with its values, and no other row is;
* the newest image of each key by `_sequence` is the table as the producer has it;
* no stream ends but for a column that it does not know or that has become wider, or for a worker that was killed (or
  for which Spark waited ten seconds, on an overloaded machine); all streams read to the end;
* memory, open files, threads and processes are flat in each life of the program, and the heap after collections;
* at the end no process, no connection and no file is left.
"""

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import chain, cycle, islice
from pathlib import Path
from subprocess import TimeoutExpired

from rich.console import Console

from examples.local_kafka import LocalKafkaCluster, create_topic
from tests.fixtures import PRELOAD, QUICK_JAVA
from tests.soak.changes import DATABASE, PARTITIONS, READ, Feed, feeds
from tests.soak.checks import SLACK, completed, flat_faults, row_faults, rows_of, table_faults, topic_of, types_of
from tests.soak.producer import Producer
from tests.soak.sampler import WORKER, Sample, Sampler, born, connections_to, processes_of, sockets_of
from tests.spark.restarts import ROOT, Child, Query, State, offset_of
from tests.support.captured import Captured

RATE = 12.0  # transactions a second, of each topic
MOST_BEHIND = 20_000  # records: the producer pauses while more are unread, so that a slow machine is not flooded
DRIFT = {"open-protocol": "fail", "canal-json": "rescue", "debezium": "fail"}  # onSchemaDrift of the streams
SHOWN = 5  # lines of each promise that is broken
START = 600.0  # seconds for the program's start; it takes 15 on two idle cores
DRAIN = 600.0  # seconds to read the rest
GRACE = 15.0  # seconds for Python workers to end after the driver
PATIENCE = 120.0  # seconds to wait for streams to read something between two faults
EXCUSED = 120.0  # seconds after the kill of a worker in which a stream may end
DRIFTED = ("onSchemaDrift", "column=quantity")  # a new column, and a value of a bigint in a column that was an int
OVERLOADED = ("Python worker failed to connect back", "CANNOT_OPEN_SOCKET")
SHORTEST_GAP, LONGEST_GAP = 9.0, 40.0  # seconds between two faults
MINUTES_A_LIFE = 7
FAULTS = (
    "broker killed", "broker restarted", "worker killed", "driver killed",
    "column added", "column widened", "stream restarted",
)  # fmt: skip


@dataclass
class Report:
    """What a run says.

    Attributes:
        happened: (second, what) of everything that was done to the program.
        facts: lines about what was compared.
        broken: promises that do not hold.
    """

    seed: int
    minutes: float
    happened: list[tuple[float, str]] = field(default_factory=list)
    facts: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)

    def print(self, console: Console) -> None:
        """Print it."""

        def line(text: str = "") -> None:
            console.print(text, markup=False, highlight=False, soft_wrap=True)

        line(
            f"soak: {self.minutes:g} minutes, seed {self.seed}; "
            f'again: make soak ARGS="--minutes {self.minutes:g} --seed {self.seed}"'
        )
        line()
        counts = {what: sum(each == what for _, each in self.happened) for what in FAULTS}
        line("what was done: " + ", ".join(f"{count} {what}" for what, count in counts.items() if count))
        for fact in self.facts:
            line(fact)
        line()
        for broken in self.broken:
            line(f"BROKEN: {broken}")
        line(f"{len(self.broken)} promises broken" if self.broken else "all promises held")


class Soak:
    """A run."""

    def __init__(self, report: Report, folder: Path, cluster: LocalKafkaCluster, console: Console) -> None:
        self._report, self._folder, self._cluster, self._console = report, folder, cluster, console
        self._chance = random.Random(report.seed)
        self._feeds = feeds(report.seed, folder)
        self._producer = Producer(
            cluster.bootstrap_servers, self._feeds, RATE, random.Random(report.seed + 1),
            lambda: sum(self._progress()[1].values()) > MOST_BEHIND,
        )  # fmt: skip
        self._queries = [self._query(feed) for feed in self._feeds]
        self._sampler = Sampler(self._progress)
        self._began = time.time()
        self._lives: list[Child] = []
        self._before: Mapping[str, int] = {}

    def _query(self, feed: Feed) -> Query:
        options = {
            "kafka.bootstrap.servers": self._cluster.bootstrap_servers,
            "subscribe": feed.topic,
            "tables": f"{DATABASE}.{READ}",
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": "2000",
            "onSchemaDrift": DRIFT[feed.protocol],
        }
        return Query(options, str(self._folder / feed.topic))

    def run(self) -> None:
        """Run it; what does not hold is in the report."""
        for feed in self._feeds:
            create_topic(
                self._cluster.bootstrap_servers, feed.topic, PARTITIONS, {"min.insync.replicas": 2}, replicas=3
            )
        self._producer.start()
        try:
            self._start()
            self._do_all()
        finally:
            self._producer.stop()
        self._check_producer()
        self._drain()
        self._end()
        self._compare()

    def close(self) -> None:
        """Kill the program, if it still runs."""
        self._sampler.stop()
        for child in self._lives:
            child.kill()
        for feed in self._feeds:
            feed.truths.close()

    # --- the program ---

    def _start(self) -> None:
        """Start the program, or start it again."""
        child = Child(self._queries, self._folder / f"life-{len(self._lives)}", "tests.soak.program")
        self._lives.append(child)
        self._sampler.watch(len(self._lives), child.pid, child.log_file)
        child.wait_for(lambda: child.has_started, seconds=START)

    def _progress(self) -> tuple[Mapping[str, int], Mapping[str, int]]:
        done = {query.options["subscribe"]: _committed(query) for query in self._queries}
        return done, {topic: self._producer.end_of(topic) - count for topic, count in done.items()}

    def _drain(self) -> None:
        deadline = time.monotonic() + DRAIN
        while any(self._progress()[1].values()) and time.monotonic() < deadline:
            time.sleep(0.5)
        left = {topic: count for topic, count in self._progress()[1].items() if count}
        if left:
            self._break(
                "not read to the end", [f"{count:,} records of {topic} are left" for topic, count in left.items()]
            )

    def _end(self) -> None:
        """End the program, and look for what it has left."""
        child = self._lives[-1]
        self._sampler.stop()
        try:
            code = child.end()
            self._break("the program's end", [f"exit code {code}"] if code else [])
        except TimeoutExpired:
            self._break("the program's end", ["has not ended in a minute"])
            child.kill()
        deadline = time.monotonic() + GRACE
        while (
            left := [pid for pid, start in self._sampler.seen.items() if start and born(pid) == start]
        ) and time.monotonic() < deadline:
            time.sleep(0.1)
        self._break("left behind", [f"process {pid}" for pid in left])
        ports = {int(broker.bootstrap_servers.rpartition(":")[2]) for broker in self._cluster.brokers}
        owners = [os.getpid(), *(broker.pid for broker in self._cluster.brokers if broker.pid)]
        known = set(chain.from_iterable(map(sockets_of, owners)))
        foreign = [f"a connection to a broker, socket {inode}" for inode in connections_to(ports) if inode not in known]
        self._break("left behind", foreign)
        kept = {"log", "queries.json"}
        files = [entry.name for entry in child.log_file.parent.iterdir() if entry.name not in kept]
        self._break("left behind", [f"{name} in the program's folder" for name in files])

    # --- faults ---

    def _do_all(self) -> None:
        """Do everything on the schedule, which starts once the program has.

        On a slow machine it is late, because streams read something between two actions, and all but the kills of the
        program that comes after the end is left out.
        """
        began, lasts = self._sampler.second, self._report.minutes * 60
        late = 0.0
        for second, action in self._schedule(lasts):
            self._wait_until(began + second + late)
            self._wait_for_progress(all_streams=action == self._kill_driver)
            late = self._sampler.second - began - second
            if second + late < lasts or action == self._kill_driver:
                action()
        self._wait_until(began + lasts)

    def _wait_for_progress(self, *, all_streams: bool) -> None:
        """Wait until streams have read something since the last time, if there is something."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            done, backlog = self._progress()
            behind = [topic for topic in done if done[topic] <= self._before.get(topic, 0) and backlog[topic]]
            if not behind or (not all_streams and len(behind) < len(done)):
                break
            self._check_producer()
            time.sleep(0.2)
        self._before = self._progress()[0]

    def _check_producer(self) -> None:
        if self._producer.error is not None:
            raise self._producer.error

    def _wait_until(self, second: float) -> None:
        while self._sampler.second < second:
            self._check_producer()
            time.sleep(0.1)

    def _schedule(self, ends: float) -> list[tuple[float, Callable[[], None]]]:
        """Return what to do at which second."""
        chance = self._chance
        schedule: list[tuple[float, Callable[[], None]]] = []
        gap = min(LONGEST_GAP, max(SHORTEST_GAP, ends / 16))
        faults = cycle((self._kill_broker, self._kill_worker, self._restart_broker, self._kill_worker))
        second = gap
        while second < ends - 10:
            schedule.append((second, next(faults)))
            second += chance.uniform(0.7, 1.3) * gap
        kills = max(1, int(self._report.minutes // MINUTES_A_LIFE))
        schedule += [(ends * (number + 1) / (kills + 1), self._kill_driver) for number in range(kills)]
        count = min(20, int(ends // 20))
        for number, feed in enumerate(islice(cycle(self._feeds), count)):
            schedule.append(
                (ends * (number + 1) / (count + 1), self._alter(feed, widen=number // len(self._feeds) == 1))
            )
        return sorted(schedule, key=lambda each: each[0])

    def _happens(self, what: str, more: str = "") -> None:
        self._report.happened.append((self._sampler.second, what))
        backlog = sum(self._progress()[1].values())
        self._console.print(f"[{self._sampler.second:6.0f} s] {what}{more}; backlog {backlog:,}", markup=False)

    def _kill_broker(self) -> None:
        number = self._chance.randrange(len(self._cluster.brokers))
        down = self._chance.uniform(2, 8)
        self._happens("broker killed", f": {number + 1}, for {down:.0f} s and its start")
        self._cluster.brokers[number].kill()
        time.sleep(down)
        self._cluster.brokers[number].start()

    def _restart_broker(self) -> None:
        number = self._chance.randrange(len(self._cluster.brokers))
        self._happens("broker restarted", f": {number + 1}")
        self._cluster.brokers[number].restart()

    def _kill_worker(self) -> None:
        """Kill a Python worker of the program: a child of one of PySpark's daemons."""
        workers = [process for process in processes_of(self._lives[-1].pid) if process.kind == WORKER]
        daemons = {process.pid for process in workers}
        forked = [process.pid for process in workers if process.parent in daemons]
        if not forked:
            return
        pid = self._chance.choice(sorted(forked))
        self._happens("worker killed", f": {pid}")
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return

    def _kill_driver(self) -> None:
        states = [str(State.of(query.checkpoint)) for query in self._queries]
        self._happens("driver killed", f": {', '.join(states)}")
        self._lives[-1].kill()
        for query in self._queries:
            query.forget_an_empty_checkpoint()
        self._start()

    def _alter(self, feed: Feed, *, widen: bool) -> Callable[[], None]:
        def alter() -> None:
            self._happens("column widened" if widen else "column added", f": {feed.topic}")
            self._producer.alter(feed, "widened" if widen else "added")

        return alter

    # --- promises ---

    def _break(self, promise: str, lines: Iterable[str]) -> None:
        """Report that a promise is broken if there is a line."""
        found = list(lines)
        self._report.broken += [f"{promise}: {line}" for line in found[:SHOWN]]
        if len(found) > SHOWN:
            self._report.broken.append(f"{promise}: {len(found) - SHOWN:,} more")

    def _compare(self) -> None:
        counts, report = self._producer.counts, self._report
        report.samples = self._sampler.samples
        report.facts.append(
            f"written: {counts.messages:,} messages, of which {counts.repeated:,} a second time on purpose"
            f" and {counts.failed:,} again after an error"
        )
        self._judge_ended_streams()
        for feed, query in zip(self._feeds, self._queries, strict=True):
            self._compare_topic(feed, query)
        judged, faults = flat_faults(report.samples)
        report.facts.append(f"flat: {judged} series of {', '.join(SLACK)} were judged, in {len(self._lives)} lives")
        self._break("flat", faults)

    def _compare_topic(self, feed: Feed, query: Query) -> None:
        records, wrong = topic_of(self._cluster.bootstrap_servers, feed.topic, feed.truths)
        self._break("Kafka has all", wrong)
        types = types_of(feed.header)
        rows = [completed(row, types) for row in rows_of(query.output)]
        self._break(f"{feed.topic}: each row once", row_faults(Captured(feed.header, records), rows))
        current = feed.tables[0].current
        self._break(f"{feed.topic}: the table", table_faults(feed.header, rows, current))
        self._report.facts.append(
            f"{feed.topic}: {sum(map(len, records.values())):,} records; {len(rows):,} rows of {READ} were compared,"
            f" and the table of {len(current):,} rows; {State.of(query.checkpoint).committed + 1:,} micro-batches"
        )

    def _judge_ended_streams(self) -> None:
        """Judge each end of a stream: for a column it did not know, or a killed worker, or against the promise."""
        kills = [second for second, what in self._report.happened if what == "worker killed"]
        changed = Counter(what for _, what in self._report.happened)
        allowed = 2 * (changed["column added"] + changed["column widened"])
        by_topic = {query.folder: query.options for query in self._queries}
        reasons: Counter[str] = Counter()
        for at, folder, error in self._ended_streams():
            second = at - self._began
            self._report.happened.append((second, "stream restarted"))
            options = by_topic[folder]
            if options["onSchemaDrift"] == "fail" and any(words in error for words in DRIFTED):
                reasons["a change of the table"] += 1
            elif any(0 <= second - killed <= EXCUSED for killed in kills) and "ticdc_source.errors" not in error:
                reasons["a killed worker"] += 1
            elif any(words in error for words in OVERLOADED):
                reasons["a Python that did not start within Spark's ten seconds (the machine is overloaded)"] += 1
            else:
                self._break("no stream ends", [f"{options['subscribe']} after {second:.0f} s: {error[:2000]}"])
        drifts = reasons["a change of the table"]
        self._break("no stream ends", [f"{drifts} for {allowed // 2} changes of tables"] if drifts > allowed else [])
        ends = ", ".join(f"{count} for {reason}" for reason, count in reasons.items()) or "none"
        self._report.facts.append(f"streams that ended and were started again: {ends}")

    def _ended_streams(self) -> Iterator[tuple[float, str, str]]:
        for child in self._lives:
            for line in child.log.splitlines():
                if line.startswith("{") and '"ended"' in line:
                    said = json.loads(line)
                    yield said["at"], said["ended"], said["error"]


def _committed(query: Query) -> int:
    """Return how many records the committed micro-batches of a query have read."""
    batch = State.of(query.checkpoint).committed
    return sum(offset_of(query.checkpoint, batch)[query.options["subscribe"]].values()) if batch >= 0 else 0


def main() -> None:
    """Run it, print the report, and exit with 1 if a promise is broken."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.soak", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=3.0, help="how long to produce and to do harm")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**31))
    parser.add_argument(
        "--report", type=Path, default=ROOT / "build" / "soak" / "report.txt", help="file of the report"
    )
    arguments = parser.parse_args()
    # Workers that import faster: on a loaded machine Spark gives up a Python that takes ten seconds to start.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(PRELOAD), os.environ.get("PYTHONPATH")]))
    os.environ.setdefault("JDK_JAVA_OPTIONS", QUICK_JAVA)  # brokers and Spark share a few cores
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # as Ctrl-C: everything that was started is ended
    console = Console(highlight=False)
    console.print(f"seed {arguments.seed}: --seed {arguments.seed} repeats this run")
    report = Report(arguments.seed, arguments.minutes)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ticdc-soak-")))
        cluster = stack.enter_context(LocalKafkaCluster())
        folders = [broker.folder for broker in cluster.brokers]
        soak = Soak(report, folder, cluster, console)
        stack.callback(soak.close)
        soak.run()
    report.broken += [f"left behind: {path}" for path in (folder, *folders) if path is not None and path.exists()]
    report.print(console)
    arguments.report.parent.mkdir(parents=True, exist_ok=True)
    with arguments.report.open("w", encoding="utf-8") as file:
        report.print(Console(file=file, width=200))
    console.print(f"the report is in {arguments.report}")
    sys.exit(bool(report.broken))


if __name__ == "__main__":
    main()
