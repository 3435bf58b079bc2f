"""The oldest Kafka that this project supports: Kafka 2.4, the version in the examples of TiCDC's documentation.

It needs a ZooKeeper, a second process. It listens with SASL for PLAIN only.
"""

import subprocess
from pathlib import Path

from examples.local_kafka.broker import HOST, LocalKafka, free_ports, java_command, run_in
from examples.local_kafka.jars import OLDEST, Release


class OldestKafka(LocalKafka):
    """One broker with a ZooKeeper; used as a `LocalKafka`, but once stopped or halted it cannot start again."""

    _zookeeper: subprocess.Popen[bytes] | None = None
    _zookeeper_port = 0

    def _release(self) -> Release:
        return OLDEST

    def _format(self, folder: Path, _java: str, _jars: Path) -> None:
        """Write ZooKeeper's settings: the broker's storage needs no preparation."""
        settings = {
            "dataDir": "./zookeeper",
            "clientPort": self._zookeeper_port,
            "clientPortAddress": HOST,
            "admin.enableServer": "false",
        }
        text = "".join(f"{name}={value}\n" for name, value in settings.items())
        (folder / "zookeeper.properties").write_text(text)

    def _coordination(self, _listeners: str) -> dict[str, object]:
        (self._zookeeper_port,) = free_ports(1)
        return {
            "broker.id": 1,
            "zookeeper.connect": f"{HOST}:{self._zookeeper_port}",
            "zookeeper.connection.timeout.ms": 60_000,  # both start at the same time
            "controlled.shutdown.enable": "false",  # there is no other broker to take over
        }

    def _launch(self, folder: Path, java: str, jars: Path) -> None:
        """Start ZooKeeper, then the broker, which waits for it."""
        command = java_command(folder, java, jars, "-Xmx128m")
        command += ["org.apache.zookeeper.server.ZooKeeperServerMain", "./zookeeper.properties"]
        self._zookeeper = run_in(folder, "zookeeper", command)
        super()._launch(folder, java, jars)

    def halt(self, grace_seconds: float = 0.0) -> None:
        """End both processes, the broker first: it does not end without ZooKeeper."""
        super().halt(grace_seconds)
        if self._zookeeper is None or self.folder is None or self.pid is not None:  # a forked child still has the pid
            return
        self._zookeeper.kill()  # it has written everything that it has answered
        self._zookeeper.wait()
        (self.folder / "zookeeper.pid").unlink(missing_ok=True)
        self._zookeeper = None
