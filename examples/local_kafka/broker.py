"""A real single-node Apache Kafka, broker and controller in one process, that lives as long as its owner.

with LocalKafka() as kafka:
    produce(kafka.bootstrap_servers, "tidb-orders", [(0, None, b"{}", [], None)])
"""

import atexit
import base64
import os
import random
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from types import TracebackType
from typing import NoReturn

from kafka import KafkaAdminClient
from kafka.errors import KafkaError

from examples.local_kafka.jars import NEWEST, Release, find_java, kafka_jars

HOST = "127.0.0.1"
BOOTSTRAP_VARIABLE = "TICDC_TEST_BOOTSTRAP"
_HERE = Path(__file__).parent
_TAIL_LINES = 40

# Below the range from which systems take the ports of outgoing connections (Linux from 32768, macOS from 49152). A
# client that keeps trying a stopped broker's port in that range sooner or later gets that same port for its own end: it
# is then connected to itself, and the broker cannot come back.
_PORTS = range(10_000, 32_000)

_SETTINGS = {
    "inter.broker.listener.name": "PLAINTEXT",
    "listener.security.protocol.map": ("CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT"),
    # One node: nothing to replicate, and internal topics of one partition are created in no time.
    "offsets.topic.replication.factor": 1,
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "transaction.state.log.num.partitions": 1,
    "share.coordinator.state.topic.replication.factor": 1,
    "share.coordinator.state.topic.min.isr": 1,
    "share.coordinator.state.topic.num.partitions": 1,
    "min.insync.replicas": 1,
    "default.replication.factor": 1,
    "num.partitions": 1,
    "group.initial.rebalance.delay.ms": 0,
    # On purpose: a test can show that reading a topic that does not exist does not create it.
    "auto.create.topics.enable": "true",
    # Records keep the timestamps that tests give them, however old or new, until a topic's own retention.ms.
    "log.retention.ms": -1,
    "log.message.timestamp.before.max.ms": 2**63 - 1,
    "log.message.timestamp.after.max.ms": 2**63 - 1,
    # A topic with a small retention.ms or with cleanup.policy=compact loses its records within seconds.
    "log.retention.check.interval.ms": 500,
    "log.initial.task.delay.ms": 500,
    "log.segment.delete.delay.ms": 0,
    "log.cleaner.backoff.ms": 500,
    "log.cleaner.dedupe.buffer.size": 4 * 2**20,
    "message.max.bytes": 20 * 2**20,
    "num.network.threads": 2,
    "num.io.threads": 4,
    "background.threads": 2,
}


class KafkaStartError(RuntimeError):
    """The broker did not start; the message ends with the last lines of its log."""


class LocalKafka:
    """One broker: an address, a folder and a process, which end with `stop()` or the `with` block.

    Args:
        sasl: Also listen with SASL_PLAINTEXT, for SCRAM-SHA-256 and PLAIN, and create a user with a password.
        heap: The maximum size of Java's heap, as Java writes it.
        properties: Broker settings that are added to, or replace, those of this module.
        start_seconds: How long `start()` waits for the broker to answer.
        cluster: The id of the cluster that the broker belongs to; None for one of its own.
        jmx: Whether the broker's metrics can be read by JMX, at `jmx_port`.
        java_options: Options of the broker's Java, such as `-Dname=value`.

    Attributes:
        jmx_port: The port for JMX, without a password; None without `jmx`.
        bootstrap_servers: Where clients connect; the same before and after a `restart()`.
        sasl_bootstrap_servers: Where clients connect with SASL; None without `sasl`.
        user: The SASL user; None without `sasl`.
        password: The SASL user's password; None without `sasl`.
        owned: Whether this object may stop, restart and pause the broker.
    """

    owned = True

    def __init__(
        self,
        *,
        sasl: bool = False,
        heap: str = "512m",
        properties: Mapping[str, object] | None = None,
        start_seconds: float = 60.0,
        cluster: str | None = None,
        jmx: bool = False,
        java_options: Sequence[str] = (),
    ) -> None:
        ports = free_ports(4)
        self.jmx_port = ports[3] if jmx else None
        self.bootstrap_servers = f"{HOST}:{ports[0]}"
        self.sasl_bootstrap_servers = f"{HOST}:{ports[1]}" if sasl else None
        self.user = "ticdc" if sasl else None
        self.password = secrets.token_hex(16) if sasl else None
        self._controller = f"{HOST}:{ports[2]}"
        self._heap = heap
        self._properties = dict(properties or {})
        self._java_options = tuple(java_options)
        # "-" would start an option
        self._cluster = cluster or base64.b64encode(uuid.uuid4().bytes, b"AA").decode().rstrip("=")
        self._start_seconds = start_seconds
        self._owner = os.getpid()
        self._folder: Path | None = None
        self._watchdog: subprocess.Popen[bytes] | None = None
        self._broker: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "LocalKafka":  # noqa: PYI034  # typing.Self is Python 3.11's
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def folder(self) -> Path | None:
        """The folder with the broker's data, its settings and `broker.log`; None if there is no broker."""
        return self._folder

    @property
    def controller(self) -> str:
        """The address of the controller, for other brokers of the same cluster."""
        return self._controller

    @property
    def pid(self) -> int | None:
        """The broker's process id; None if it does not run."""
        return self._broker.pid if self._broker else None

    def _release(self) -> Release:
        """Return the release of Kafka to run."""
        return NEWEST

    def start(self) -> None:
        """Start the broker and wait until it answers; after `halt()`, with the data it had.

        Raises:
            KafkaSetupError: Java or Maven is missing, or the jars could not be fetched.
            KafkaStartError: The broker ended, or did not answer in time.
        """
        if self._broker is not None:
            raise RuntimeError(f"the broker on {self.bootstrap_servers} runs already")
        java, jars = find_java(), kafka_jars(self._release())
        try:
            folder = self._folder or self._prepare(java, jars)
            self._launch(folder, java, jars)
            self._await_answer(folder)
        except BaseException:  # also Ctrl-C: nobody else can stop the broker yet
            self.stop()
            raise

    def halt(self, grace_seconds: float = 15.0) -> None:
        """End the broker's process and keep its data: `start()` starts it again at the same address."""
        if self._broker is None or self._folder is None or os.getpid() != self._owner:
            return
        self._broker.terminate()
        self.resume()  # a paused process does not receive the signal
        try:
            self._broker.wait(grace_seconds)
        except subprocess.TimeoutExpired:
            self._broker.kill()
            self._broker.wait()
        (self._folder / "broker.pid").unlink(missing_ok=True)
        self._broker = None

    def kill(self) -> None:
        """End the broker's process as `kill -9` does, and keep its data: `start()` starts it again."""
        if self._broker is not None:
            self._broker.kill()
        self.halt()

    def stop(self) -> None:
        """End the broker and remove everything it has written; safe to repeat."""
        if os.getpid() != self._owner:  # a forked child has a copy of this object, not the broker
            return
        self.halt()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None
        if self._watchdog is not None:  # last: if this process is killed before, the watchdog finishes the work
            self._watchdog.kill()
            self._watchdog.wait()
            self._watchdog = None
        atexit.unregister(self.stop)

    def restart(self) -> None:
        """Halt the broker and start it again, on the same ports and with the same data."""
        self.halt()
        self.start()

    def pause(self) -> None:
        """Freeze the broker: its connections stay open and nothing answers, until `resume()`."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a paused broker continue."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        if self._broker is None:
            raise RuntimeError(f"the broker on {self.bootstrap_servers} does not run")
        self._broker.send_signal(number)

    def _prepare(self, java: str, jars: Path) -> Path:
        """Create the folder, start a watchdog, write the settings, and prepare the storage."""
        self._folder = folder = Path(tempfile.mkdtemp(prefix="local-kafka-"))
        atexit.register(self.stop)
        self._watchdog = subprocess.Popen(
            [sys.executable, "-I", str(_HERE / "watchdog.py"), str(os.getpid()), str(folder)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=folder,
            start_new_session=True,
        )
        (folder / "tmp").mkdir()
        settings = {**_SETTINGS, **self._addresses(), "log.dirs": folder / "data", **self._properties}
        (folder / "server.properties").write_text(
            "".join(f"{name}={_escaped(value)}\n" for name, value in settings.items())
        )
        self._format(folder, java, jars)
        return folder

    def _format(self, folder: Path, java: str, jars: Path) -> None:
        """Write to the broker's storage what must be there before its first start."""
        quick = "-XX:TieredStopAtLevel=1"  # too short a life for the optimising compiler
        command = java_command(folder, java, jars, quick)
        command += ["kafka.tools.StorageTool", "format", "-c", "server.properties", "-t", self._cluster]
        if self.user:
            for mechanism in (
                "SCRAM-SHA-256",
                "SCRAM-SHA-512",
            ):  # only the first is enabled, unless `properties` say so
                command += ["--add-scram", f"{mechanism}=[name={self.user},password={self.password}]"]
        with (folder / "broker.log").open("ab") as log:
            answer = subprocess.run(command, check=False, cwd=folder, stdout=log, stderr=log)
        if answer.returncode != 0:
            self._fail(folder, f"kafka.tools.StorageTool ended with {answer.returncode}")

    def _addresses(self) -> dict[str, object]:
        listeners = f"PLAINTEXT://{self.bootstrap_servers}"
        if not self.sasl_bootstrap_servers:
            sasl = {}
        else:
            listeners += f",SASL_PLAINTEXT://{self.sasl_bootstrap_servers}"
            modules = "org.apache.kafka.common.security"
            prefix = "listener.name.sasl_plaintext"
            sasl = {
                "sasl.enabled.mechanisms": "SCRAM-SHA-256,PLAIN",
                f"{prefix}.scram-sha-256.sasl.jaas.config": f"{modules}.scram.ScramLoginModule required;",
                f"{prefix}.plain.sasl.jaas.config": (
                    f'{modules}.plain.PlainLoginModule required user_{self.user}="{self.password}";'
                ),
            }
        return {"listeners": listeners, "advertised.listeners": listeners, **sasl, **self._coordination(listeners)}

    def _coordination(self, listeners: str) -> dict[str, object]:
        """Return the settings of a broker that is its own controller."""
        return {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": f"1@{self._controller}",
            "listeners": f"{listeners},CONTROLLER://{self._controller}",
        }

    def _launch(self, folder: Path, java: str, jars: Path) -> None:
        jmx = [
            f"-D{name}={value}"
            for name, value in (
                ("com.sun.management.jmxremote.port", self.jmx_port),
                ("com.sun.management.jmxremote.rmi.port", self.jmx_port),
                ("com.sun.management.jmxremote.host", HOST),
                ("com.sun.management.jmxremote.authenticate", "false"),
                ("com.sun.management.jmxremote.ssl", "false"),
                ("java.rmi.server.hostname", HOST),
            )
            if self.jmx_port is not None
        ]
        command = java_command(folder, java, jars, f"-Xmx{self._heap}", *jmx, *self._java_options)
        self._broker = run_in(folder, "broker", [*command, "kafka.Kafka", "server.properties"])

    def _await_answer(self, folder: Path) -> None:
        deadline = time.monotonic() + self._start_seconds
        while not _answers(self.bootstrap_servers):
            code = self._broker.poll() if self._broker else None
            if code is not None:
                self._fail(folder, f"the broker ended with {code}")
            if time.monotonic() > deadline:
                silence = f"the broker on {self.bootstrap_servers} did not answer in {self._start_seconds} s"
                self._fail(folder, silence)
            time.sleep(0.05)

    def _fail(self, folder: Path, reason: str) -> NoReturn:
        with (folder / "broker.log").open(errors="replace") as log:
            tail = "".join(deque(log, _TAIL_LINES))
        raise KafkaStartError(f"{reason}; the end of its log:\n{tail}")


class ExternalKafka:
    """A broker that somebody else runs, with the methods of `LocalKafka`: it is never stopped or paused."""

    owned = False
    sasl_bootstrap_servers: str | None = None
    user: str | None = None
    password: str | None = None
    folder: Path | None = None
    pid: int | None = None

    def __init__(self, bootstrap_servers: str) -> None:
        self.bootstrap_servers = bootstrap_servers

    def start(self) -> None:
        """Do nothing: the broker runs."""

    def stop(self) -> None:
        """Do nothing: the broker is not ours."""

    def halt(self) -> NoReturn:
        """Refuse."""
        self._refuse()

    def restart(self) -> NoReturn:
        """Refuse."""
        self._refuse()

    def pause(self) -> NoReturn:
        """Refuse."""
        self._refuse()

    def resume(self) -> NoReturn:
        """Refuse."""
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise RuntimeError(f"the broker on {self.bootstrap_servers} is not ours to halt or pause (ask `owned` first)")


@contextmanager
def connect(
    bootstrap: str | None = None, *, sasl: bool = False, heap: str = "512m"
) -> Iterator[LocalKafka | ExternalKafka]:
    """Return a context with the broker at `bootstrap` or at `$TICDC_TEST_BOOTSTRAP`, else with one of its own.

    `sasl` and `heap` hold for its own only: what another broker offers is not known here.
    """
    bootstrap = bootstrap or os.environ.get(BOOTSTRAP_VARIABLE)
    if bootstrap:
        yield ExternalKafka(bootstrap)
    else:
        with LocalKafka(sasl=sasl, heap=heap) as kafka:
            yield kafka


def run_in(folder: Path, name: str, command: list[str]) -> subprocess.Popen[bytes]:
    """Start a process that the watchdog ends with its owner, by FOLDER/NAME.pid; it writes to FOLDER/broker.log."""
    with (folder / "broker.log").open("ab") as log:
        return subprocess.Popen(
            ["/bin/sh", "-c", f'echo $$ > {name}.pid && exec "$@"', "sh", *command],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # Ctrl-C in a terminal is for the owner, who stops the broker
        )


def java_command(folder: Path, java: str, jars: Path, *options: str) -> list[str]:
    """Return how to start Java, without the main class."""
    return [
        java,
        *options,
        "-XX:+UseSerialGC",  # the least work for a small heap on few cores
        "-XX:+ExitOnOutOfMemoryError",
        "-XX:-UsePerfData",  # else Java writes to a folder of its own in /tmp
        f"-Djava.io.tmpdir={folder / 'tmp'}",  # where the compression libraries unpack themselves
        f"-Dlog4j2.configurationFile={_HERE / 'log4j2.properties'}",
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",  # the oldest release logs without log4j2
        "-cp",
        str(jars / "*"),
    ]


def _escaped(value: object) -> str:
    """Return a value as a Java properties file needs it: a backslash would escape the character behind it."""
    return str(value).replace("\\", "\\\\")


def _answers(bootstrap_servers: str) -> bool:
    """Return whether a broker answers there, as a member of a cluster that has a controller."""
    host, port = bootstrap_servers.rsplit(":", 1)
    try:
        with socket.create_connection((host, int(port)), timeout=1.0):
            pass
        with closing(KafkaAdminClient(bootstrap_servers=bootstrap_servers, bootstrap_timeout_ms=2000)) as admin:
            cluster = admin.describe_cluster()
    except (OSError, KafkaError):
        return False
    return bool(cluster["brokers"])


def free_ports(count: int) -> list[int]:
    """Find ports that nothing listens on."""
    ports: list[int] = []
    for port in random.sample(_PORTS, len(_PORTS)):
        with socket.socket() as probe:
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
        ports.append(port)
        if len(ports) == count:
            return ports
    raise OSError(f"no {count} free ports between {_PORTS.start} and {_PORTS.stop} on {HOST}")
