"""Fuzzing: damaged messages, alone and among good ones, in every mode and every output format.

`make fuzz` runs it; `python -m tests.fuzz --mutants 1000000 --seed 7` fuzzes over night. The same seed repeats a run.
A mutant is one message with one change. What must hold of each, in all output formats:

* a read returns rows or raises a TiCDCSourceError, and never anything else;
* PERMISSIVE, FAILFAST and DROPMALFORMED agree: FAILFAST fails if and only if PERMISSIVE has a bad record, and
  DROPMALFORMED returns the other rows;
* among thousands of good messages it gives the same rows or bad records as alone, and the good ones stay as they are,
  with the native path and without. Alone it is read by the general path, which has nothing to learn of: so what the
  native path accepts has the general path's cells.

Half of the mutants have other values only, so that many of them still are what a template expects.
"""

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc

from tests.support.captured import Captured, Record, load, make_options, random_sizes, whole
from tests.support.messages import framed
from tests.support.mutations import MUTATIONS, Mutation, other_member
from ticdc_source.errors import TiCDCSourceError
from ticdc_source.pipeline.read import read
from ticdc_source.pipeline.spec import ReadSpec, ReadState, read_spec
from ticdc_source.protocols.open_protocol.split import VERSION, frames

SCENARIOS = (
    "open-protocol.default",
    "open-protocol.only-output-updated-columns",
    "canal-json.plain",
    "canal-json.tidb-extension",
    "canal-json.content-compatible",
    "debezium.default",
    "debezium.disable-schema",
    "debezium.tidb-extension",
)
OUTPUTS = ("changelog", "envelope", "event")
MODES = ("PERMISSIVE", "FAILFAST", "DROPMALFORMED")
TABLES = ("t_all", "t_num", "t_time", "t_str", "t_bin", "t_enum", "t_json", "t_int", "t_default")
ROUND = 250  # mutants that are read together
GOOD = 5000  # messages around them
_BAD = "_corrupt_record"
# Columns that say where a row was found: a mutant lies elsewhere when it is alone.
_PLACES = frozenset({"_offset", "_timestamp", "_sequence", "source"})


@dataclass
class Report:
    """What a run has found.

    Attributes:
        outcomes: how many mutants were rows, bad records, errors, or nothing.
        native: how many row images the native path has read, of good messages and of mutants.
        faults: what does not hold, one line each.
    """

    outcomes: Counter[str] = field(default_factory=Counter)
    native: int = 0
    faults: list[str] = field(default_factory=list)


class Reader:
    """Reads one table with one output format, and one choice of `onSchemaDrift`, in all modes."""

    def __init__(self, captured: Captured, table: str, output: str, drift: str) -> None:
        given = {"outputFormat": output, "includeMetadata": "kafka", "tables": f"types_a.{table}"}
        if output != "event":
            given["onSchemaDrift"] = drift
        self.specs: dict[str, ReadSpec] = {}
        for mode in MODES:
            options = make_options(mode=mode, **given)
            schema = captured.schema(mode=mode, **given)
            self.specs[mode] = read_spec(schema, options, captured.context(schema, options))

    def read(
        self, records: list[Record], mode: str, seed: int | None = None, *, native_path: bool = True,
        report: Report | None = None,
    ) -> pa.Table | str:  # fmt: skip
        """Return the rows, or the name of the error; with a seed, the records come in random chunks."""
        captured = Captured({}, {0: records})
        spec = self.specs[mode]
        spec = replace(spec, plan=replace(spec.plan, native_path=native_path))
        sizes = whole if seed is None else random_sizes(seed)
        try:
            state = ReadState.of(spec)
            batches = list(read(captured.fetch(captured.ranges()[0], sizes), spec, state))
        except TiCDCSourceError as error:
            return type(error).__name__
        table = pa.Table.from_batches(batches, spec.layout.schema)
        table.validate(full=True)
        if report is not None:
            report.native += state.counters.native
        return table


def mutant(chooser: random.Random, records: list[Record]) -> Record:
    """Return a message with one change; mostly inside a frame, if it has frames, so that these still add up."""
    record = chooser.choice(records)
    change = chooser.choice(MUTATIONS) if chooser.random() < 0.5 else other_member
    is_framed = (record.key or b"").startswith(VERSION) and chooser.random() < 0.8
    if record.key and chooser.random() < 0.3:
        start = len(VERSION) if is_framed else 0
        key = record.key[start:]
        changed = _with_other_frame(key, change, chooser) if is_framed else change(key, chooser)
        return Record(record.key[:start] + changed, record.value)
    value = record.value or b" "
    changed = _with_other_frame(value, change, chooser) if is_framed and record.value else change(value, chooser)
    return Record(record.key, changed)


def _with_other_frame(data: bytes, change: Mutation, chooser: random.Random) -> bytes:
    parts = frames(data, 0, "value")
    index = chooser.randrange(len(parts))
    parts[index] = change(parts[index] or b" ", chooser)
    return framed(*parts)


def choices_of(scenario: str, seed: int) -> list[tuple[str, str, str]]:
    """Return the tables, output formats and choices of `onSchemaDrift`, in the order in which rounds take them.

    The output formats take turns: three rounds have all of them.
    """
    chooser = random.Random(f"choices {seed} {scenario}")
    each = [(table, drift) for table in TABLES for drift in ("fail", "rescue")]
    turns = [[(table, output, drift) for table, drift in chooser.sample(each, len(each))] for output in OUTPUTS]
    return [choice for turn in zip(*chooser.sample(turns, len(turns)), strict=True) for choice in turn]


def fuzz(scenario: str, mutants: int, seed: int, *, around: int = GOOD, size: int = ROUND) -> Iterator[Report]:
    """Fuzz one scenario; yield what each round of mutants has found."""
    chooser = random.Random(f"{seed} {scenario}")
    captured = load(f"{scenario}.types")
    records = [record for part in captured.partitions.values() for record in part]
    choices = choices_of(scenario, seed)
    for number in range(-(-mutants // size)):
        report = Report()
        table, output, drift = choice = choices[number % len(choices)]
        about = captured.only("types_a", table)
        reader = Reader(about, *choice)
        of_table = [record for part in about.partitions.values() for record in part]
        good = [of_table[index % len(of_table)] for index in range(around)]
        of_good = reader.read(good, "PERMISSIVE")
        assert isinstance(of_good, pa.Table)
        count = min(size, mutants - number * size)
        made = [mutant(chooser, of_table if chooser.random() < 0.8 else records) for _ in range(count)]
        alone = [_alone(reader, each, report) for each in made]
        hidden = [(each, found) for each, found in zip(made, alone, strict=True) if isinstance(found, pa.Table)]
        for native_path in (True, False):
            _among_good(reader, hidden, good, of_good, chooser, report, native_path=native_path)
        report.faults = [f"{scenario}, {table}, {output}, {drift}, round {number}: {fault}" for fault in report.faults]
        yield report


def _alone(reader: Reader, record: Record, report: Report) -> pa.Table | str:
    """Read one mutant in all modes; return what PERMISSIVE gives."""
    shown = f"key {record.key!r} value {record.value!r}"
    try:
        permissive, failfast, dropping = (reader.read([record], mode) for mode in MODES)
    except Exception as error:  # noqa: BLE001 (that is what is looked for)
        report.faults.append(f"{type(error).__name__}: {error}: {shown}")
        return "fault"
    if isinstance(permissive, str):
        report.outcomes["error"] += 1
        if not (isinstance(failfast, str) and dropping == permissive):
            report.faults.append(f"PERMISSIVE raises {permissive}, the other modes do not: {shown}")
        return permissive
    bad = permissive.num_rows - permissive[_BAD].null_count
    report.outcomes["bad record" if bad else "rows" if permissive.num_rows else "nothing"] += 1
    if isinstance(failfast, str) is not bool(bad):
        report.faults.append(f"{bad} bad records, and FAILFAST gives {failfast}: {shown}")
    rest = permissive.filter(permissive[_BAD].is_null())
    if isinstance(dropping, str) or dropping != rest.select(dropping.column_names):
        report.faults.append(f"DROPMALFORMED does not give the rows that are not bad: {shown}")
    return permissive


def _among_good(
    reader: Reader,
    hidden: list[tuple[Record, pa.Table]],
    good: list[Record],
    of_good: pa.Table,
    chooser: random.Random,
    report: Report,
    *,
    native_path: bool,
) -> None:
    """Read mutants among good messages, and compare both with what they give apart."""
    offsets = sorted(chooser.sample(range(len(good) + len(hidden)), len(hidden)))
    records = list(good)
    for offset, (record, _) in zip(offsets, hidden, strict=True):
        records.insert(offset, record)
    try:
        seed = chooser.randrange(2**31)
        together = reader.read(records, "PERMISSIVE", seed, native_path=native_path, report=report)
    except Exception as error:  # noqa: BLE001 (that is what is looked for)
        report.faults.append(f"among good messages {type(error).__name__}: {error}: offsets {offsets}")
        return
    if isinstance(together, str):
        report.faults.append(f"among good messages {together}: offsets {offsets}")
        return
    is_mutant = pc.is_in(together["_offset"], pa.array(offsets, pa.int64()))
    if _placeless(together.filter(pc.invert(is_mutant))) != _placeless(of_good):
        report.faults.append(f"the rows of good messages change beside mutants at offsets {offsets}")
    mutants = together.filter(is_mutant)
    for offset, (record, apart) in zip(offsets, hidden, strict=True):
        mine = mutants.filter(pc.equal(mutants["_offset"], offset))
        if _placeless(mine) != _placeless(apart) or mine[_BAD].null_count != apart[_BAD].null_count:
            report.faults.append(f"other rows among good messages: key {record.key!r} value {record.value!r}")


def _placeless(table: pa.Table) -> pa.Table:
    """Return the columns that do not depend on where the rows were found."""
    names = [name for name in table.column_names if name not in _PLACES and name != _BAD]
    return table.select(names).combine_chunks()
