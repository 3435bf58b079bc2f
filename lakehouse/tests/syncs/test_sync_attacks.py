"""`ticdc-lakehouse sync` under attack: partitions and topics change, logins end, names and secrets are hostile."""

import json
import os
import random
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from kafka import KafkaAdminClient
from kafka.admin import ScramMechanism, UserScramCredentialDeletion, UserScramCredentialUpsertion

from examples.local_kafka import LocalKafka, create_topic, delete_topic
from lakehouse.tests.syncs.delta_sync import DeltaSync, delta_commits, log_of_spark
from lakehouse.tests.syncs.memory_sync import ddl, insert
from lakehouse.tests.syncs.test_sync_database import SECONDS
from tests.fixtures import Kafka
from tests.spark.conftest import MakeTopic
from tests.spark.restarts import State
from tests.support.messages import Message, canal

pytestmark = [
    pytest.mark.broker,
    pytest.mark.spark,
    pytest.mark.long("minutes, in a JVM for each run of the command"),
    pytest.mark.xdist_group("engines"),
    pytest.mark.timeout(SECONDS * 2),
]

FREEZES = int(os.environ.get("TICDC_KILLS", "1"))
COMMITS = 240

MakeSync = Callable[..., DeltaSync]
AT = 445_000_000_000_000_000  # a commit-ts of 2023


def update(number: int, name: str, commit_ts: int) -> Message:
    types = {"id": "int", "name": "varchar(10)"}
    return canal("UPDATE", [{"id": str(number), "name": name}], [{"name": "before"}], types, database="shop",
                 table="a", pkNames=["id"], _tidb={"commitTs": AT + commit_ts})  # fmt: skip


def new(table: str, number: int, name: str, commit_ts: int) -> Message:
    return insert(table, number, AT + commit_ts, name=name)


def toml(**settings: str) -> str:
    """Return settings as lines of sync.toml; `_` in a name stands for a dot."""
    return "\n".join(f"{json.dumps(name.replace('_', '.'))} = {json.dumps(text)}" for name, text in settings.items())


def obstruct(sync: DeltaSync, table: str) -> Path:
    """Put a folder that is no table where shop.<table> belongs, and return it."""
    obstacle = sync.folder / "lake" / "shop" / table
    obstacle.mkdir(parents=True)
    (obstacle / "part-0.csv").write_text("no table")
    return obstacle


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
    sync.write(update(1, "newest", 40), new("b", 1, "new table", 41), partition=2)
    sync.wait(live, _0=2, _2=2)
    sync.write(update(1, "older", 30), update(2, "second", 31), partition=0)
    sync.write(update(2, "third", 50), partition=1)
    sync.wait(live, _0=4, _1=1, _2=2)
    assert sync.rows("a", "id", "name") == [(1, "newest"), (2, "third")]
    assert sync.rows("b", "id", "name") == [(1, "new table")]

    delete_topic(servers, name)
    create_topic(servers, name, 3)
    sync.write(*(new("a", number, "of another topic", 60 + number) for number in range(10, 20)))
    assert live.end(SECONDS) not in (0, 1)
    assert "failOnDataLoss" in live.log
    assert sync.rows("a", "id", "name") == [(1, "newest"), (2, "third")]


def test_two_hundred_new_tables_come_at_once(make: MakeSync, broker: Kafka, topic: MakeTopic) -> None:
    """One micro-batch creates them side by side; one that cannot be created stops no other, and is resumed later."""
    sync, numbers = make(broker.bootstrap_servers, topic()), range(200)
    obstacle = obstruct(sync, "t7")
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


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_running_sync_is_stopped(
    make: MakeSync, broker: Kafka, topic: MakeTopic, number: signal.Signals, code: int
) -> None:
    """A signal ends it in seconds, by the exit code that says so; the next start needs no wait for its lease."""
    sync = make(broker.bootstrap_servers, topic(partitions=1))
    sync.write(new("a", 1, "one", 10))
    live = sync.start("--trigger=1 second")
    sync.wait(live, _0=1)
    time.sleep(3)
    os.kill(live.pid, number)
    assert live.end(60) == code, live.log
    assert "Traceback" not in live.log

    sync.write(new("a", 2, "two", 20))
    again = sync.start()
    assert again.end(SECONDS) == 0, again.log
    assert sync.rows("a", "id", "name") == [(1, "one"), (2, "two")]


def test_a_login_that_is_refused_in_a_running_sync(make: MakeSync, with_login: LocalKafka, tmp_path: Path) -> None:
    """Logins are repeated without a word; one that is refused ends the sync in seconds, and the next start goes on."""
    kafka = with_login
    servers, password = kafka.bootstrap_servers, str(kafka.password)
    create_topic(servers, "t")
    login = toml(
        kafka_security_protocol="SASL_PLAINTEXT",
        kafka_sasl_mechanism="SCRAM-SHA-256",
        kafka_sasl_jaas_config=f'x.ScramLoginModule required username="{kafka.user}" password="{password}";',
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


def odd_table(odd: str) -> list[Message]:
    """Return the messages of a table that has a text which Spark would replace wherever MySQL takes one."""
    types = {"id": "int", f"c{odd}": "varchar(50)", f"e{odd}": f"enum('{odd}','other')"}
    more = {**types, f"n{odd}": "varchar(50)"}
    cells = {"id": "1", f"c{odd}": odd, f"e{odd}": "1"}
    facts: dict[str, Any] = {"database": "shop", "table": f"t{odd}", "pkNames": ["id"]}
    return [
        ddl(f"t{odd}", f"CREATE TABLE `t{odd}` (`id` int PRIMARY KEY, `c{odd}` varchar(50) DEFAULT '{odd}' COMMENT "
            f"'{odd}', `e{odd}` enum('{odd}','other') COMMENT '{odd}') COMMENT '{odd}'", AT + 1, "CREATE"),
        canal("INSERT", [cells], None, types, **facts, _tidb={"commitTs": AT + 2}),
        ddl(f"t{odd}", f"ALTER TABLE `t{odd}` ADD COLUMN `n{odd}` varchar(50) DEFAULT '{odd}' COMMENT '{odd}'", AT + 3,
            "ALTER"),
        canal("INSERT", [{**cells, "id": "2", f"n{odd}": odd}], None, more, **facts, _tidb={"commitTs": AT + 4}),
    ]  # fmt: skip


def test_canaries_are_nowhere(make: MakeSync, broker: Kafka, topic: MakeTopic, tmp_path: Path) -> None:
    """No secret of the options, of Spark's settings or of the environment is in the lake, logs, event logs or state.

    Names, comments, labels and values ask for them; there is a bad record, and a table that is set aside.
    """
    login = toml(
        kafka_sasl_mechanism="PLAIN",
        kafka_sasl_jaas_config=f'x.PlainLoginModule required username="u" password="{OF_JAAS}";',
    )
    spark = toml(spark_hadoop_fs_s3a_secret_key=OF_HADOOP, spark_ticdc_canary=OF_SPARK)
    sync = make(broker.bootstrap_servers, topic(), login, f'[spark]\n{spark}\n[maintain]\nevery = "1h"\n')
    sync.environment = {**log_of_spark(tmp_path), "TICDC_CANARY": CANARY}
    sync.write(*(message for odd in ODD for message in odd_table(odd)))
    sync.write((None, f'{{"database": "{ODD[0]}", "table'.encode()))
    obstruct(sync, "blocked")
    sync.write(new("blocked", 1, ODD[0], 10))
    secrets = [CANARY, OF_HADOOP, OF_JAAS]

    first = sync.start("--verbose")
    assert first.end(SECONDS) == 1, first.log
    status = sync.start("--status")
    assert status.end(SECONDS) == 1, status.log

    assert holding(tmp_path, secrets, sync.config) == set()
    assert holding(tmp_path / "lake", [OF_SPARK, str(Path.home())]) == set()
    (events,) = (tmp_path / "events").iterdir()
    assert "SparkListenerSQLExecutionStart" in events.read_text()
    for odd in ODD:
        place = sync.statuses()[f"shop.`t{odd}`"]["target"].split("`")[1]
        rows = sync.rows(Path(place).name, "id", f"c{odd}", f"e{odd}", f"n{odd}")
        assert rows == [(1, odd, odd, odd), (2, odd, odd, odd)]


@pytest.mark.parametrize("seed", range(FREEZES))
def test_a_frozen_sync_writes_nothing_once_it_goes_on(
    make: MakeSync, broker: Kafka, topic: MakeTopic, seed: int
) -> None:
    """While one sync runs, or is stopped for a moment, another is refused; after the lease it takes over for good."""
    chance = random.Random(seed)
    sync = make(broker.bootstrap_servers, topic(2), toml(maxOffsetsPerTrigger="12"))  # many micro-batches
    changed = [[chance.randrange(50) for _ in range(5)] for _ in range(COMMITS)]
    sync.write(*(update(key, f"n{at}", at) for at, keys in enumerate(changed) for key in keys))
    sync.write(*(insert("b", at, AT + at, key=False) for at in range(COMMITS)), partition=1)
    frozen = sync.start("--trigger=0 seconds", module="lakehouse.tests.syncs.short_lease")
    sync.wait(frozen, _0=1, _1=1)
    refused = sync.start(module="lakehouse.tests.syncs.short_lease")
    assert refused.end(SECONDS) == 4, refused.log
    assert "are being written by another sync: process " in refused.log

    batch = State.of(sync.checkpoint).planned + 1
    frozen.wait_for(lambda: State.of(sync.checkpoint).planned >= batch)
    time.sleep(chance.uniform(0, 2))
    family, before = frozen.freeze(), State.of(sync.checkpoint)
    time.sleep(13)
    heir = sync.start("--trigger=0 seconds", module="lakehouse.tests.syncs.short_lease")
    heir.wait_for(lambda: State.of(sync.checkpoint).committed >= before.committed + 3, seconds=SECONDS)
    frozen.thaw(family)

    assert frozen.end(SECONDS) == 4, frozen.log
    assert "are being written by another sync" in frozen.log
    after = State.of(sync.checkpoint).committed
    heir.wait_for(lambda: State.of(sync.checkpoint).committed >= after + 3, seconds=SECONDS)
    sync.wait(heir, _0=5 * COMMITS, _1=COMMITS)
    heir.kill()
    newest = {key: f"n{at}" for at, keys in enumerate(changed) for key in keys}
    assert sync.rows("a", "id", "name") == sorted(newest.items())
    assert sync.rows("b__log", "id") == [(at,) for at in range(COMMITS)]
    for table in ("a", "b__log"):
        numbers = batches_of(sync.folder / "lake" / "shop" / table)
        assert numbers == sorted(set(numbers)), numbers  # no micro-batch is committed after a later one
    assert {one["state"] for one in sync.statuses().values()} == {"following"}
    last = sync.start()
    assert last.end(SECONDS) == 0, last.log
    print(f"seed {seed}: stopped {before}; micro-batches {State.of(sync.checkpoint)}")  # noqa: T201


def batches_of(table: Path) -> list[int]:
    """Return the numbers of the micro-batches that the commits of a Delta table record, oldest first."""
    actions = (action for commit in delta_commits(table) for action in commit)
    facts = (json.loads(action.get("commitInfo", {}).get("userMetadata") or "{}") for action in actions)
    return [int(each["ticdc.batch_id"]) for each in facts if "ticdc.batch_id" in each]
