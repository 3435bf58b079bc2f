"""The arguments of all commands: what each one takes, and what happens to nonsense."""

import argparse
import functools
import os
import re
import threading
import time
from pathlib import Path
from unittest.mock import ANY

import pytest

from tests.cli.conftest import Command, Done
from ticdc_source.cli.__main__ import COMMANDS, parser
from ticdc_source.errors import KafkaUnavailableError
from ticdc_source.inspection.report import Outcome
from ticdc_source.options.names import applies_to
from ticdc_source.options.options import OPTIONS

SECRET = "hush-hush"
SERVERS = "127.0.0.1:1"

# Nonsense for numbers: signs, fractions, words, numbers without end, digits of other scripts, and too many of them.
NO_NUMBERS = ("", " ", "-1", "nan", "inf", "-inf", "1e400", "x", "1_0", "٣", "²", "0x10", "1 2", "9" * 30, "9" * 5000)
NO_COUNTS = (*NO_NUMBERS, "0", "1.5", f"{1 << 63}")
NO_TEXTS = ("", " ", "\udcff", "x" * 100_000)
NO_PATHS = ("", "\0", "a\0b", "\ud800")
NO_TOPICS = (*NO_TEXTS, ",", "a b", "a/b", "..", ".", "x" * 250, "ä", "a,b c", "\x1b[2J", "a\0b", "a\nb")
NO_SERVERS = (
    "", ",", "broker", "broker:", ":9092", "broker:0", "broker:99999", "broker:-1", "broker:nan", "broker:٩٠٩٢",
    f"user:{SECRET}@broker:9092", f"user:{SECRET}@broker", f"a:1,user:{SECRET},x@b:9092", f"SSL://u:{SECRET}@b:9092",
    f"{SECRET}!:9092", "b:9092/", "http://b/:9092", "b b:9092", "xn--ñ.例え:9092", f"{'a' * 64}.b:9092", "a..b:9092",
    "::1:9092", "[::1:9092", "[nonsense]:9092", "[]:9092", "\udcff:9092", "a\0:9092", "b:9092;c:9092",
)  # fmt: skip
NO_CONF = ("", "x", "=", "=x", f" ={SECRET}", f"kafka.sasl.jaas.config={SECRET}\udcff")
NO_TIMES = ("", "x", "yesterday", "-", "-x", "--1", "-1.5", "-²", f"-{'9' * 30}", "0001-01-01", "1969-12-31T23:59:59Z",
            "9999-99-99", "0001-01-01T00:00:00+23:59", "nan", "2026-11-23T08:00:00+99:00", "EARLIEST\0")  # fmt: skip
NO_TABLES = (*NO_TEXTS, ",", "a", "a.b.c", "`a.b")

# What each argument refuses, without asking a broker.
REFUSED = {
    "--bootstrap-servers": NO_SERVERS,
    "--subscribe": NO_TOPICS,
    "--conf": NO_CONF,
    "--properties": (*NO_PATHS, "/dev/zero", "/", "/no/such/file", "x" * 300),
    "--max-records": NO_COUNTS,
    "--timeout": (*NO_NUMBERS, "0", "86401"),
    "--from": NO_TIMES,
    "--tables": NO_TABLES,
    "--pipeline": ("", "x", "oss,databricks", "\udcff"),
    "--kind": ("", ",", "x", "insert,x", "\udcff"),
    "--max-events": NO_COUNTS,
    "--checkpoint": NO_TEXTS,
    "--group": NO_TEXTS,
    "--interval": (*NO_NUMBERS, "86401"),
    "--count": NO_COUNTS,
    "--max-lag": NO_NUMBERS,
    "--to": (*NO_PATHS, "rows", "rows.csv"),
    "NAME": (*NO_TEXTS, "there-is-no-such-option"),
}
# What looks odd, and is right: no command may end with a traceback, or with more than one line.
TAKEN = {
    "--bootstrap-servers": ("SSL://127.0.0.1:1", "[::1]:1", "127.0.0.1:1, 127.0.0.1:1,", "münchen.invalid:1", "a_b.:1"),
    "--subscribe": ("...", "x" * 249, " a "),
    "--conf": ("nativeCode=", "=".join("abc"), "kafka.client.id=", "kafka.request.timeout.ms=1e9", "zzz=1"),
    "--properties": ("/dev/null",),
    "--max-records": ("1", f"{(1 << 63) - 1}"),
    "--timeout": ("0.001", "86400"),
    "--from": ("-0", "1970-01-01", "9999-12-31", "2026-11-23T08:00:00.5+08:00", f"-{'9' * 18}"),
    "--tables": ("a.b", "`a.b`.*"),
    "--group": ("\0", "é"),
    "--checkpoint": ("\0", "no:such:uri", "nosuchscheme://x", "/"),
    "--interval": ("0", "0.5", ".5", "5."),
    "--max-lag": ("0", "1000000000"),
    "--pipeline": ("oss", "databricks"),
    "--to": (".parquet.arrow", "é.parquet"),
}


@functools.cache
def arguments_of(command: str) -> dict[str, argparse.Action]:
    (commands,) = (each for each in parser()._actions if isinstance(each.choices, dict))
    assert isinstance(commands.choices, dict)
    return {
        each.option_strings[0] if each.option_strings else str(each.metavar): each
        for each in commands.choices[command]._actions
        if each.nargs != 0
    }


SHARED = ("--bootstrap-servers", "--subscribe", "--conf", "--properties")  # made by one function for all commands
ALL = [(command, name) for command in COMMANDS for name in arguments_of(command)]


@pytest.fixture(autouse=True)
def _no_broker(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No command connects: whatever comes so far ends as if no broker had answered."""

    def refuse(*_: object, **__: object) -> None:
        raise KafkaUnavailableError("nobody answers")

    monkeypatch.setattr("ticdc_source.sources.kafka.kafka_python.network_client.NetworkClient", refuse)
    for function in ("probe", "speaks_tls"):
        monkeypatch.setattr(f"ticdc_source.inspection.doctor.{function}", refuse)
    monkeypatch.setattr("ticdc_source.inspection.doctor.socket.getaddrinfo", lambda *_, **__: [])
    monkeypatch.setattr("ticdc_source.inspection.environment.check_worker", lambda: Outcome("ok", ""))
    monkeypatch.chdir(tmp_path)


def call(ticdc_source: Command, command: str, name: str, value: str) -> Done:
    """Run a command with a value of an argument, and with good values of those that it needs."""
    given = {"--bootstrap-servers": SERVERS, "--subscribe": "t", "--to": "rows.parquet"}
    given = {each: text for each, text in given.items() if each in arguments_of(command)} | {name: value}
    words = [f"{each}={text}" if each.startswith("--") else text for each, text in given.items()]
    return ticdc_source(command, *words, *(["--watch"] if name in {"--interval", "--count"} else []))


def lines_of(text: str) -> list[str]:
    return re.split(r"[\n\r]+", text.strip())


@pytest.mark.parametrize(("command", "name"), ALL)
def test_each_argument_has_a_parser_and_a_row_of_nonsense(command: str, name: str) -> None:
    """No argument takes whatever comes, and this table has them all."""
    assert arguments_of(command)[name].type is not None
    assert REFUSED[name]


@pytest.mark.parametrize(("command", "name"), ALL)
def test_nonsense_is_one_line_of_error(command: str, name: str, ticdc_source: Command) -> None:
    """A value out of range is exit code 2 and one line that names the argument, at once, and without a secret."""
    is_first = next(each for each, argument in ALL if argument == name) == command
    for value in REFUSED[name] if is_first or name not in SHARED else REFUSED[name][-3:]:
        began = time.monotonic()
        done = call(ticdc_source, command, name, value)
        assert (done.code, done.out) == (2, ""), (value[:80], done)
        assert len(lines_of(done.err)) == 1, (value[:80], done.err)
        assert done.err.startswith("error: "), (value[:80], done.err)
        assert name.strip("-") in done.err or name == "NAME", (value[:80], done.err)
        assert SECRET not in done.err
        assert len(done.err) < 400
        assert time.monotonic() - began < 2


# Commands that ask no broker.
WITHOUT_BROKER = ("options",)


@pytest.mark.parametrize(("command", "name"), [each for each in ALL if each[1] in TAKEN])
def test_what_is_odd_and_right_is_taken(command: str, name: str, ticdc_source: Command) -> None:
    for value in TAKEN[name] if command in ("inspect", "doctor") or name not in SHARED else TAKEN[name][-1:]:
        done = call(ticdc_source, command, name, value)
        expected = {1} if command == "doctor" else {2, 3} if name == "--conf" else {3}
        assert done.code in expected, (value[:80], done)
        assert "argument" not in done.err, (value[:80], done.err)
        assert len([line for line in lines_of(done.err) if line.startswith("error")]) == (command != "doctor")


def test_unknown_arguments_are_not_repeated(ticdc_source: Command) -> None:
    """The error of an argument that does not exist names it, and not its value, which may be a password."""
    for arguments in (
        (f"--pasword={SECRET}",),
        (f"--json={SECRET}",),
        (f"--verbose={SECRET}",),
        ("--confi", f"kafka.sasl.jaas.config={SECRET}"),
        (SECRET,),
        (f"-p{SECRET}",),
    ):
        done = ticdc_source("inspect", "--bootstrap-servers", SERVERS, "--subscribe", "t", *arguments)
        assert done.code == 2
        assert len(lines_of(done.err)) == 1
        assert SECRET not in done.err
        assert arguments[0].removesuffix(SECRET).removesuffix("=") in done.err


TOO_MANY = "unexpected word; put quotes around a value with spaces"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("lag", SECRET, "--subscribe", "t"), f"{TOO_MANY}; see ticdc-source lag --help"),
        (("options", "kafka", SECRET), f"{TOO_MANY}; see ticdc-source options --help"),
        (
            ("lag", "--subscribe", "t", f"kafka.sasl.jaas.config={SECRET}"),
            "kafka.sasl.jaas.config=… is an option of the source: put --conf before it; see ticdc-source lag --help",
        ),
        (
            ("lag", "--subscribe", "t", f"--json={SECRET}"),
            "argument --json: it takes no value; see ticdc-source lag --help",
        ),
        (("lag", "--subscribe", "t", "--nope"), "unknown argument --nope; see ticdc-source lag --help"),
        ((SECRET, "--subscribe", "t"), "argument COMMAND: there is no such command; see ticdc-source --help"),
        (("lag", "--subscribe", "t", "--count", "2"), "argument --count needs --watch: without it, lag looks once"),
        (("lag", "--subscribe", "t", "--interval=2"), "argument --interval needs --watch: without it, lag looks once"),
    ],
)
def test_what_is_wrong_is_named(arguments: tuple[str, ...], message: str, ticdc_source: Command) -> None:
    """A word that may be a password is not repeated; the error names the help of the command that does not take it."""
    done = ticdc_source(*arguments, *([] if arguments[0] == "options" else ["--bootstrap-servers", SERVERS]))

    assert (done.code, done.out, done.err.strip()) == (2, "", f"error: {message}")


@pytest.mark.parametrize("command", [each for each in COMMANDS if each not in WITHOUT_BROKER])
def test_each_command_warns_of_options_without_effect(command: str, ticdc_source: Command) -> None:
    """An option that a command does not use is one warning that names both, and no other option is."""
    refused = {"assign", "subscribePattern", "commitGroupOffsets"}
    given = {row.name: row.default or "1" for row in OPTIONS if row.name not in refused | {"subscribe"}}
    unused = {name for use in ("tail", "lag") if use == command for name in given if not applies_to(use, name)}
    for name, value in given.items() if unused else [("mode", "FAILFAST")]:
        done = call(ticdc_source, command, "--conf", f"{name.upper()}={value}")
        said = f"warning: Option '{name.upper()}' has no effect in ticdc-source {command} and is ignored"
        assert (done.err.count(said), done.err.count(name.upper())) == ((1, 1) if name in unused else (0, ANY)), (
            done.err
        )

    for name, argument in (("subscribe", "--subscribe"), ("kafka.bootstrap.servers", "--bootstrap-servers")):
        done = call(ticdc_source, command, "--conf", f"{name}=x:1")
        said = f"Option '{name}' has no effect in ticdc-source {command} and is ignored; {argument} sets it"
        assert done.err.count(f"warning: {said}") == 1, done.err


@pytest.mark.parametrize("command", [each for each in COMMANDS if "--conf" in arguments_of(each)])
def test_each_command_refuses_a_near_miss(command: str, ticdc_source: Command) -> None:
    """`--conf` with a near miss of a name is exit code 2 and the right name, before a broker or Spark is asked."""
    done = call(ticdc_source, command, "--conf", "startOffsets=earliest")

    assert "Unknown option 'startOffsets'; did you mean 'startingOffsets'?" in done.out + done.err
    assert done.code == (1 if command == "doctor" else 2)


def test_properties_may_come_from_a_pipe(ticdc_source: Command, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    thread = threading.Thread(target=pipe.write_text, args=("ssl.ciphrs=1\nclient.id=me\n",))
    thread.start()
    done = call(ticdc_source, "lag", "--properties", str(pipe))
    thread.join()

    assert (done.code, "did you mean 'kafka.ssl_ciphers'" in done.err) == (2, True), done.err
