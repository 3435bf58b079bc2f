"""`python -m examples.demo`: replay TiCDC's messages into Kafka, and rebuild SQL's tables with Spark."""

import argparse
import signal
import sys
from contextlib import ExitStack
from pathlib import Path

from examples.data import PROTOCOLS, TRUTH
from examples.demo.screen import Screen

INTRODUCTION = """\
TiCDC, TiDB's change feed, wrote these messages: the same transactions of a web shop, in three protocols. The
demo replays them into Kafka, reads them with Spark, rebuilds the shop's tables from the changes, and compares
every column of every row with the result of SQL."""


def main() -> int:
    """Run the demo; return 0 if everything is equal, 1 if not."""
    parser = argparse.ArgumentParser(prog="python -m examples.demo", description=__doc__)
    parser.add_argument("--protocol", choices=PROTOCOLS, help="only this one (default: all)")
    parser.add_argument("--truth", type=Path, default=TRUTH, help="what to compare with (default: the bundled truth)")
    arguments = parser.parse_args()
    if not arguments.truth.is_file():
        parser.error(f"there is no file {arguments.truth}")
    protocols = [arguments.protocol] if arguments.protocol else list(PROTOCOLS)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    failures: tuple[type[Exception], ...] = ()
    try:
        with Screen() as screen, ExitStack() as stack:
            screen.title("TiDB → TiCDC → Kafka → Spark")
            screen.say(INTRODUCTION)
            with screen.part("loading PySpark and PyArrow"):
                from examples.demo import run  # noqa: PLC0415 (takes seconds, and the screen shows what happens)
            failures = run.FAILURES
            try:
                return run.run(screen, protocols, arguments.truth, stack)
            finally:  # a second Ctrl-C must not stop the stack from cleaning up
                for number in (signal.SIGINT, signal.SIGTERM):
                    signal.signal(number, signal.SIG_IGN)
    except BaseException as error:
        if isinstance(error, failures):
            print(f"The demo cannot run: {error}", file=sys.stderr)
            return 2
        if not interrupted(error):
            raise
        print("stopped", file=sys.stderr)
        return 130


def interrupted(error: BaseException | None) -> bool:
    """Return whether Ctrl-C caused an error: PySpark may raise another one while it stops."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error is not None


if __name__ == "__main__":
    sys.exit(main())
