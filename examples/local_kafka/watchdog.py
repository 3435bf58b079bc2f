"""Ends a broker whose owner died without ending it, and removes its folder.

Run by path, with the standard library only: `python -I watchdog.py OWNER_PID FOLDER`. It asks for the process id of its
parent, which is a property of the *process*: Linux's PR_SET_PDEATHSIG follows the thread that started the child, so
that a broker started in a thread would die with the thread, and macOS has no such thing. It runs in a session of its
own: a signal to the owner's process group (Ctrl-C, a CI's time limit) does not end it.

The broker's process id is in FOLDER/broker.pid, that of a ZooKeeper in FOLDER/zookeeper.pid. The process writes that
file itself before it becomes Java, and does not become Java if it cannot write it: whenever the owner dies, the process
is found.
"""

import contextlib
import os
import shutil
import signal
import sys
import time
from pathlib import Path

POLL_SECONDS = 0.2
REMOVE_SECONDS = 10.0


def watch(owner: int, folder: Path) -> None:
    """Wait until `owner` is no longer the parent of this process; then end the broker, remove its folder."""
    while os.getppid() == owner:
        time.sleep(POLL_SECONDS)
    deadline = time.monotonic() + REMOVE_SECONDS
    while folder.exists() and time.monotonic() < deadline:
        for file in folder.glob("*.pid"):
            with contextlib.suppress(FileNotFoundError, ValueError, ProcessLookupError):
                os.kill(int(file.read_text()), signal.SIGKILL)
        shutil.rmtree(folder, ignore_errors=True)  # a broker that is still dying may write once more
        time.sleep(POLL_SECONDS)


if __name__ == "__main__":
    watch(int(sys.argv[1]), Path(sys.argv[2]))
