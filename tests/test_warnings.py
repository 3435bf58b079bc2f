"""Where warnings point, how often they come, and how long the traceback of an error is."""

import linecache
import logging
import subprocess
import sys
import traceback
import warnings
from collections.abc import Iterator

import pytest

from tests.support.paths import ROOT
from ticdc_source.errors import OptionError, each_from_one_frame, from_one_frame, once_per_query, warn
from ticdc_source.planning import load
from ticdc_source.spark.source import TiCDCDataSource

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
        load.infer_schema({options})
        load.infer_schema({options})
"""


def test_a_warning_points_to_the_users_line() -> None:
    """Whatever module of ours warns, the line shown is the one that called the package."""
    with pytest.warns(UserWarning, match="'zzz'") as caught:
        load.infer_schema(UNKNOWN)

    assert caught[0].filename == __file__
    assert "load.infer_schema(UNKNOWN)" in linecache.getline(__file__, caught[0].lineno)


def test_sparks_processes_show_no_line_and_each_query_its_warnings() -> None:
    """Where Spark calls the package, a warning has no source line; each query shows it once, also the second one."""
    code = _WORKER.replace("{options}", repr(UNKNOWN))
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )

    said = "Unknown option 'zzz' is ignored; the command 'ticdc-source options' lists all"
    line = f'format("ticdc"):0: UserWarning: {said}'
    assert done.stderr.splitlines() == [line, line]


def test_one_query_shows_a_warning_once() -> None:
    """Inside a query the same text is shown once, from whatever line; filters still hold."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with once_per_query(set()):
            warn("first")
            warn("first")
            warn("second")
        warnings.simplefilter("ignore")
        warn("third")

    assert [str(warning.message) for warning in caught] == ["first", "second"]


def test_a_query_shows_a_wrong_unit_once() -> None:
    """Whatever Spark asks the data source for, and in whatever order."""
    given = {**UNKNOWN, "startingTimestamp": "1790000040"}
    del given["zzz"]

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        source = TiCDCDataSource(given)
        schema = source.schema()
        source.reader(schema)
        source.streamReader(schema)

    assert [str(warning.message).partition(" takes ")[0] for warning in caught] == ["Option 'startingTimestamp'"]


def failing() -> None:
    """Fail as the package does: several frames deep, with a cause."""
    try:
        int("x")
    except ValueError as error:
        raise OptionError("the cause") from error  # noqa: TRY003, EM101


def printed(error: BaseException) -> list[str]:
    """Return what Python prints."""
    return "".join(traceback.format_exception(error)).splitlines()


def test_our_own_error_has_one_frame() -> None:
    """Python prints four lines: the heading, one frame, the error. The cause is in its text."""
    with pytest.raises(OptionError) as caught:
        from_one_frame(failing)()
    caught.value.__traceback__ = caught.value.__traceback__.tb_next  # type: ignore[union-attr]  # that of this test

    lines = printed(caught.value)
    assert len(lines) == 4
    assert lines[-1] == "ticdc_source.errors.OptionError: the cause"


def test_the_cause_of_our_own_error_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """The log has at DEBUG what the short traceback leaves out: all frames, and the chain of causes."""

    def of_another() -> None:
        try:
            int("x")
        except ValueError as error:
            msg = "no number"
            raise OptionError(msg) from error

    with caplog.at_level(logging.DEBUG, logger="ticdc_source"), pytest.raises(OptionError):
        from_one_frame(of_another)()

    assert "ValueError: invalid literal for int()" in caplog.text
    assert "in of_another" in caplog.text


def test_an_iterator_fails_from_one_frame_too() -> None:
    """Items arrive before the error, and a wrapped generator keeps its name."""

    @each_from_one_frame
    def items() -> Iterator[int]:
        yield 1
        failing()

    iterator = items()
    assert next(iterator) == 1
    with pytest.raises(OptionError) as caught:
        next(iterator)

    assert len(printed(caught.value)) == 6  # with two of this test
    assert items.__name__ == "items"


def test_a_bug_keeps_its_traceback() -> None:
    """An exception that the package does not raise on purpose keeps all frames and its cause."""

    def bug() -> None:
        try:
            int("x")
        except ValueError as error:
            raise RuntimeError from error

    with pytest.raises(RuntimeError) as caught:
        from_one_frame(bug)()

    assert isinstance(caught.value.__cause__, ValueError)
    assert "in bug" in "\n".join(printed(caught.value))
