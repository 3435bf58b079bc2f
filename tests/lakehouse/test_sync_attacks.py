"""`ticdc-source sync` under attack: partitions and topics that change, logins that end, hostile names and secrets."""

import json
import os
import random
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import count
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from kafka import KafkaAdminClient
from kafka.admin import ScramMechanism, UserScramCredentialDeletion, UserScramCredentialUpsertion

from examples.local_kafka import LocalKafka, create_topic, delete_topic
from tests.conftest import Kafka
from tests.lakehouse.delta_sync import DeltaSync, delta_commits, log_of_spark
from tests.lakehouse.memory_sync import ddl, insert
from tests.lakehouse.test_sync_database import SECONDS
from tests.spark.conftest import MakeTopic
from tests.spark.restarts import State
from tests.support.messages import Message, canal

pytestmark = [
    pytest.mark.broker,
    pytest.mark.spark,
    pytest.mark.slow("a JVM for each run of the command"),
    pytest.mark.xdist_group("versions"),
    pytest.mark.timeout(SECONDS * 2),
]

FREEZES = int(os.environ.get("TICDC_KILLS", "1"))

MakeSync = Callable[..., DeltaSync]
AT = 445_000_000_000_000_000  # a commit-ts of 2023


def update(table: str, number: int, name: str, commit_ts: int) -> Message:
    """Return an update of shop.<table>."""
    types = {"id": "int", "name": "varchar(10)"}
    return canal("UPDATE", [{"id": str(number), "name": name}], [{"name": "before"}], types, database="shop",
                 table=table, pkNames=["id"], _tidb={"commitTs": AT + commit_ts})  # fmt: skip


def new(table: str, number: int, name: str, commit_ts: int) -> Message:
    """Return an insert into shop.<table>."""
    return insert(table, number, AT + commit_ts, name=name)


@pytest.fixture
def make(tmp_path: Path) -> Iterator[MakeSync]:
    """A function that returns a command; its processes end with the test."""
    made: list[DeltaSync] = []

    def one(servers: str, topic: str, source: str = "", more: str = "") -> DeltaSync:
        made.append(DeltaSync(servers, topic, tmp_path, source, more))
        return made[-1]

    yield one
    for each in made:
        each.kill_all()


def test_partitions_are_added_and_the_topic_is_created_again(make: MakeSync, broker: Kafka, topic: MakeTopic) -> None:
    """Rows of new partitions come in the order of their commit-ts; another topic of that name ends the sync at once."""
    servers, name = broker.bootstrap_servers, topic()
    sync = make(servers, name)
    sync.write(new("a", 1, "first", 10), new("a", 2, "first", 11))
    live = sync.start("--trigger=1 second")
    sync.wait(live, _0=2)

    with closing(KafkaAdminClient(bootstrap_servers=servers)) as admin:
        admin.create_partitions({name: 3})
        admin.wait_for_topics([name])
    sync.write(update("a", 1, "newest", 40), new("b", 1, "new table", 41), partition=2)
    sync.wait(live, _0=2, _2=2)
    sync.write(update("a", 1, "older", 30), update("a", 2, "second", 31), partition=0)
    sync.write(update("a", 2, "third", 50), partition=1)
    sync.wait(live, _0=4, _1=1, _2=2)
    assert sync.rows("a", "id", "name") == [(1, "newest"), (2, "third")]
    assert sync.rows("b", "id", "name") == [(1, "new table")]

    delete_topic(servers, name)
    create_topic(servers, name, 3)
    sync.write(*(new("a", number, "of another topic", 60 + number) for number in range(10, 20)))
    assert live.end(SECONDS) not in (0, 1)
    assert "failOnDataLoss" in live.log
    assert sync.rows("a", "id", "name") == [(1, "newest"), (2, "third")]


@pytest.mark.long("two hundred tables")
def test_two_hundred_new_tables_come_at_once(make: MakeSync, broker: Kafka, topic: MakeTopic) -> None:
    """One micro-batch creates them side by side; one that cannot be created stops no other, and is resumed later."""
    servers, name, numbers = broker.bootstrap_servers, topic(), range(200)
    sync = make(servers, name)
    obstacle = sync.folder / "lake" / "shop" / "t7"
    obstacle.mkdir(parents=True)
    (obstacle / "part-0.csv").write_text("no table")
    create = "CREATE TABLE `t{}` (`id` int PRIMARY KEY, `name` varchar(10))"
    created = [ddl(f"t{one}", create.format(one), AT + one, "CREATE") for one in numbers]
    sync.write(*created, *(new(f"t{one}", row, "first", 1000 + row) for one in numbers for row in range(5)))

    first = sync.start()
    assert first.end(SECONDS) == 1, first.log
    shutil.rmtree(obstacle)
    sync.write(*(new(f"t{one}", 9, "second", 2000) for one in numbers))
    second = sync.start("--resume=shop.t7")
    assert second.end(SECONDS) == 0, second.log

    assert "200 tables (199 new)" in first.log or "199 tables (199 new)" in first.log
    assert {len(sync.rows(f"t{one}", "id")) for one in numbers} == {6}
    assert {one["complete_since"] is None for one in sync.statuses().values()} == {False}


REAUTH_S = 2


@pytest.fixture
def with_login() -> Iterator[LocalKafka]:
    """A broker that wants each login again after some seconds."""
    prefix = "listener.name.sasl_plaintext.scram-sha-256"
    with LocalKafka(sasl=True, properties={f"{prefix}.connections.max.reauth.ms": REAUTH_S * 1000}) as kafka:
        yield kafka


def change_login(kafka: LocalKafka, password: str | None) -> None:
    """Give the user another password, or remove the user."""
    user = str(kafka.user)
    change = UserScramCredentialDeletion(user, ScramMechanism.SCRAM_SHA_256)
    if password is not None:
        change = UserScramCredentialUpsertion(user, ScramMechanism.SCRAM_SHA_256, password)
    with closing(KafkaAdminClient(bootstrap_servers=kafka.bootstrap_servers)) as admin:
        assert admin.alter_user_scram_credentials([change]) == {user: None}


@pytest.mark.long("a broker of its own, and three runs of the command")
def test_a_login_that_is_refused_in_a_running_sync(make: MakeSync, with_login: LocalKafka, tmp_path: Path) -> None:
    """Logins are repeated without a word; one that is refused ends the sync in seconds, and the next start goes on."""
    kafka = with_login
    servers, password = kafka.bootstrap_servers, str(kafka.password)
    create_topic(servers, "t")
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    jaas = f'{module} required username=\\"{kafka.user}\\" password=\\"{password}\\";'
    login = (
        f'"kafka.security.protocol" = "SASL_PLAINTEXT"\n"kafka.sasl.mechanism" = "SCRAM-SHA-256"\n'
        f'"kafka.sasl.jaas.config" = "{jaas}"'
    )
    sync = make(str(kafka.sasl_bootstrap_servers), "t", login)
    sync.environment = log_of_spark(tmp_path)
    sync.write(new("a", 1, "one", 10), servers=servers)
    live = sync.start("--trigger=1 second", "--verbose")
    sync.wait(live, _0=1)
    time.sleep(2 * REAUTH_S)  # each connection has logged in again
    sync.write(new("a", 2, "two", 20), servers=servers)
    sync.wait(live, _0=2)

    change_login(kafka, None)
    began = time.monotonic()
    assert live.end(SECONDS) == 2, live.log
    seconds = time.monotonic() - began
    sync.write(new("a", 3, "three", 30), servers=servers)
    refused = sync.start()
    assert refused.end(SECONDS) == 2, refused.log
    change_login(kafka, password)
    again = sync.start()
    assert again.end(SECONDS) == 0, again.log

    assert seconds < 30
    for life in (live, refused):
        assert "refuses the login" in life.log
        assert "kafka.sasl.jaas.config" in life.log
    assert sync.rows("a", "id", "name") == [(1, "one"), (2, "two"), (3, "three")]
    assert {name: one["state"] for name, one in sync.statuses().items()} == {"shop.a": "following"}
    assert holding(tmp_path, [password], sync.config) == set()


def holding(folder: Path, secrets: list[str], *apart: Path) -> set[str]:
    """Return which files of a folder, beside some, hold secrets, and which; Parquet is unpacked."""
    found = set()
    for path in folder.rglob("*"):
        if path.is_file() and path not in apart:
            text = path.read_bytes()
            if path.suffix == ".parquet" and text:
                text += repr(pq.ParquetFile(path).read().to_pylist()).encode()
            found |= {f"{secret} in {path.relative_to(folder)}" for secret in secrets if secret.encode() in text}
    return found


CANARY, OF_SPARK, OF_HADOOP, OF_JAAS = (
    f"canary-{random.Random(name).getrandbits(64):x}" for name in ("env", "spark", "hadoop", "jaas")
)
ODD = "${env:TICDC_CANARY}", "${spark.hadoop.fs.s3a.secret.key}", "${spark.ticdc.canary}", "${system:user.home}"


def odd_table(number: int) -> tuple[str, list[Message]]:
    """Return a table whose names, comments, labels and values are what Spark would replace, and its messages."""
    name = f"t{ODD[number]}"
    columns = {"id": "int", f"c{ODD[0]}": "varchar(50)", f"e{ODD[1]}": f"enum('{ODD[0]}','{ODD[1]}')"}
    query = (
        f"CREATE TABLE `{name}` (`id` int PRIMARY KEY COMMENT '{ODD[0]}', `c{ODD[0]}` varchar(50) DEFAULT '{ODD[1]}' "
        f"COMMENT '{ODD[2]}', `e{ODD[1]}` enum('{ODD[0]}','{ODD[1]}') COMMENT '{ODD[3]}') COMMENT '{ODD[1]}'"
    )
    cells = {"id": "1", f"c{ODD[0]}": ODD[number], f"e{ODD[1]}": "2"}
    more = f"ALTER TABLE `{name}` ADD COLUMN `n{ODD[2]}` varchar(50) DEFAULT '{ODD[0]}' COMMENT '{ODD[1]}'"
    return name, [
        ddl(name, query, AT + 1, "CREATE"),
        canal("INSERT", [cells], None, columns, database="shop", table=name, pkNames=["id"],
              _tidb={"commitTs": AT + 2}),
        ddl(name, more, AT + 3, "ALTER"),
        canal("INSERT", [{**cells, "id": "2", f"n{ODD[2]}": ODD[3]}], None, {**columns, f"n{ODD[2]}": "varchar(50)"},
              database="shop", table=name, pkNames=["id"], _tidb={"commitTs": AT + 4}),
    ]  # fmt: skip


def test_canaries_are_nowhere(make: MakeSync, broker: Kafka, topic: MakeTopic, tmp_path: Path) -> None:
    """No secret of the options, of Spark's settings or of the environment is in the lake, logs, event logs or state.

    Names, comments, labels and values ask for them; there is a bad record, and a table that is set aside.
    """
    servers, name = broker.bootstrap_servers, topic()
    login = (
        f'"kafka.sasl.jaas.config" = "x.PlainLoginModule required username=\\"u\\" password=\\"{OF_JAAS}\\";"\n'
        f'"kafka.sasl.mechanism" = "PLAIN"'
    )
    spark = (
        f'[spark]\n"spark.hadoop.fs.s3a.secret.key" = "{OF_HADOOP}"\n"spark.ticdc.canary" = "{OF_SPARK}"\n'
        '[maintain]\nevery = "1h"\n'
    )
    sync = make(servers, name, login, more=spark)
    sync.environment = {**log_of_spark(tmp_path), "TICDC_CANARY": CANARY}
    tables = dict(odd_table(number) for number in range(len(ODD)))
    sync.write(*(message for messages in tables.values() for message in messages))
    sync.write((None, f'{{"database": "{ODD[0]}", "table'.encode()))
    obstacle = tmp_path / "lake" / "shop" / "blocked"
    obstacle.mkdir(parents=True)
    (obstacle / "part-0.csv").write_text("no table")
    sync.write(new("blocked", 1, ODD[0], 10))
    secrets = [CANARY, OF_HADOOP, OF_JAAS]

    first = sync.start("--verbose")
    assert first.end(SECONDS) == 1, first.log
    status = sync.start("--status")
    assert status.end(SECONDS) == 1, status.log

    assert holding(tmp_path, secrets, sync.config) == set()
    assert holding(tmp_path / "lake", [OF_SPARK, str(Path.home())]) == set()
    written = "".join(path.read_text(errors="replace") for path in tmp_path.rglob("*") if path.is_file())
    assert "SparkListenerSQLExecutionStart" in written
    for table in tables:
        place = sync.statuses()[f"shop.`{table}`"]["target"].split("`")[1]
        rows = sync.rows(Path(place).name, "id", f"c{ODD[0]}", f"e{ODD[1]}", f"n{ODD[2]}")
        assert rows == [(1, table[1:], ODD[1], ODD[0]), (2, table[1:], ODD[1], ODD[3])], rows


class Feed:
    """Changes of a table with a key and of one without, written until a test ends them."""

    def __init__(self, sync: DeltaSync) -> None:
        self.sync = sync
        self.rows: dict[int, str] = {}  # of the table with a key
        self.logged: list[int] = []
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        chance = random.Random(1)
        for number in count(1):
            keys = [chance.randrange(50) for _ in range(5)]
            self.rows |= dict.fromkeys(keys, f"n{number}")
            self.logged.append(number)
            self.sync.write(*(update("a", key, f"n{number}", number) for key in keys))
            self.sync.write(insert("b", number, AT + number, key=False), partition=1)
            if self._ends.wait(0.2):
                return

    def end(self) -> dict[str, int]:
        """Write no more; return how many records each partition has."""
        self._ends.set()
        self._thread.join()
        return {"_0": 5 * len(self.logged), "_1": len(self.logged)}


@pytest.mark.long("a process waits for the end of another one's lease")
@pytest.mark.parametrize("seed", range(FREEZES))
def test_a_frozen_sync_writes_nothing_once_it_goes_on(
    make: MakeSync, broker: Kafka, topic: MakeTopic, seed: int
) -> None:
    """While one sync runs, or is stopped for a moment, another is refused; after the lease it takes over for good."""
    chance = random.Random(seed)
    sync = make(broker.bootstrap_servers, topic(2))
    feed = Feed(sync)
    frozen = sync.start("--trigger=0 seconds", module="tests.lakehouse.short_lease")
    sync.wait(frozen, _0=1, _1=1)
    refused = sync.start(module="tests.lakehouse.short_lease")
    assert refused.end(SECONDS) == 4, refused.log
    assert "are being written by another sync: process " in refused.log

    batch = State.of(sync.checkpoint).planned + 1
    frozen.wait_for(lambda: State.of(sync.checkpoint).planned >= batch)
    time.sleep(chance.uniform(0, 2))
    family, before = frozen.freeze(), State.of(sync.checkpoint)
    time.sleep(13)
    heir = sync.start("--trigger=0 seconds", module="tests.lakehouse.short_lease")
    heir.wait_for(lambda: State.of(sync.checkpoint).committed >= before.committed + 3, seconds=SECONDS)
    frozen.thaw(family)

    assert frozen.end(SECONDS) == 4, frozen.log
    assert "are being written by another sync" in frozen.log
    after = State.of(sync.checkpoint).committed
    heir.wait_for(lambda: State.of(sync.checkpoint).committed >= after + 3, seconds=SECONDS)
    sync.wait(heir, **feed.end())
    heir.kill()
    assert sync.rows("a", "id", "name") == sorted(feed.rows.items())
    assert sync.rows("b__log", "id") == [(number,) for number in feed.logged]
    for table in ("a", "b__log"):
        numbers = batches_of(sync.folder / "lake" / "shop" / table)
        assert numbers == sorted(set(numbers)), numbers  # no micro-batch is committed after a later one
    assert {one["state"] for one in sync.statuses().values()} == {"following"}
    last = sync.start()
    assert last.end(SECONDS) == 0, last.log
    print(f"seed {seed}: stopped {before}; micro-batches {State.of(sync.checkpoint)}; rows {len(feed.rows)}, "  # noqa: T201
          f"{len(feed.logged)}")  # fmt: skip


def batches_of(table: Path) -> list[int]:
    """Return the numbers of the micro-batches that the commits of a Delta table record, oldest first."""
    every = [
        one["commitInfo"].get("userMetadata")
        for commit in delta_commits(table)
        for one in commit
        if "commitInfo" in one
    ]
    told = [json.loads(one) for one in every if one is not None]
    return [int(one["ticdc.batch_id"]) for one in told if "ticdc.batch_id" in one]
