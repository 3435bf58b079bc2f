"""Where warnings point, how often they come, and how long the traceback of an error is."""

import linecache
import subprocess
import sys
import traceback

import pytest

from tests.support.paths import ROOT
from ticdc_source.errors import OptionError, from_one_frame
from ticdc_source.planning import load

UNKNOWN = {
    "kafka.bootstrap.servers": "127.0.0.1:1",
    "subscribe": "t",
    "zzz": "1",
    "outputFormat": "event",
    "nativeCode": "off",  # nothing to warn of where there is no native path
}

# As Spark does: a module of pyspark is the program, and no line of the user is on the stack.
_WORKER = """
import sys, types
sys.modules["__main__"].__spec__ = types.SimpleNamespace(name="pyspark.daemon")
from ticdc_source.planning import load
from ticdc_source.errors import once_per_query
for query in range(2):
    with once_per_query(set()):
        load.load_schema({options})
        load.load_schema({options})
"""


def test_a_warning_points_to_the_users_line() -> None:
    """Whatever module of ours warns, the line shown is the one that called the package."""
    with pytest.warns(UserWarning, match="'zzz'") as caught:
        load.load_schema(UNKNOWN)

    assert caught[0].filename == __file__
    assert "load.load_schema(UNKNOWN)" in linecache.getline(__file__, caught[0].lineno)


def test_sparks_processes_show_no_line_and_each_query_its_warnings() -> None:
    """Where Spark calls the package, a warning has no source line; each query shows it once, also the second one."""
    code = _WORKER.replace("{options}", repr(UNKNOWN))
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )

    said = "Unknown option 'zzz' is ignored; the command 'ticdc-source options' lists all"
    line = f'format("ticdc"):0: UserWarning: {said}'
    assert done.stderr.splitlines() == [line, line]


def failing() -> None:
    try:
        int("x")
    except ValueError as error:
        raise OptionError("the cause") from error


def printed(error: BaseException) -> list[str]:
    return "".join(traceback.format_exception(error)).splitlines()


def test_our_own_error_has_one_frame() -> None:
    """Python prints four lines: the heading, one frame, the error. The cause is in its text."""
    with pytest.raises(OptionError) as caught:
        from_one_frame(failing)()
    caught.value.__traceback__ = caught.value.__traceback__.tb_next  # type: ignore[union-attr]  # that of this test

    lines = printed(caught.value)
    assert len(lines) == 4
    assert lines[-1] == "ticdc_source.errors.OptionError: the cause"
