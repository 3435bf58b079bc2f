"""Fuzzing of the native path: what it accepts, the general path reads with equal cells.

Native code leaves what it declines to the general path, so only what it accepts can be wrong. Thousands of mutants go
through the templates of one table in one chunk, with a general path that only notes the events it is given. The real
general path then reads exactly the others: it must have no failure for them, and the same values, bit for bit. As it
gets what is left, it must read some of those behind the messages that they were made of as it reads them alone.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

from tests.fuzz.damaged import TABLES
from tests.fuzz.mutants import Mutator
from tests.support.captured import Captured, load, make_options
from tests.support.truth import tables_with_rows
from ticdc_source.errors import TiCDCSourceError
from ticdc_source.kernels.arrays import Binaries
from ticdc_source.kernels.wire import Settings
from ticdc_source.pipeline.spec import read_spec
from ticdc_source.planning.read_context import context_of_schema
from ticdc_source.protocols.base import Decoded, Learned, LearnedTable
from ticdc_source.protocols.decoding import Decoder
from ticdc_source.protocols.events import EventKey, TableEvents
from ticdc_source.protocols.plan import Plan, WireOf
from ticdc_source.protocols.templates import General, KeepTemplate, Templates
from ticdc_source.schema.model import ReadField
from ticdc_source.schema.table_name import TableName
from ticdc_source.schema.types import CONVERSIONS, category_of
from ticdc_source.sources.chunk import Chunk

SCENARIOS = {
    "open-protocol": (
        "open-protocol.default",
        "open-protocol.only-output-updated-columns",
        "open-protocol.delete-only-output-handle-key-columns",
        "stream.open-protocol",
    ),
    "canal-json": (
        "canal-json.tidb-extension",
        "canal-json.plain",
        "canal-json.content-compatible",
        "canal-json.only-output-updated-columns",
        "stream.canal-json.tidb-extension",
    ),
    "debezium": (
        "debezium.disable-schema",
        "debezium.default",
        "debezium.tidb-extension",
        "debezium.include-start-ts",
        "debezium.output-old-value-off",
        "stream.debezium.tidb-extension.disable-schema",
    ),
}
# What stands before the rows of a message, and what behind them.
_ROWS = {"open-protocol": (b"", b""), "canal-json": (b'"old":', b'"_tidb":'), "debezium": (b'"op":', b'},"schema":')}
ROUND = 2500  # mutants that go through templates in one chunk
_LEARNED_MUTANTS = 12  # of which templates are learned in every second round
_SHOWN = 5  # faults of a round
_ALONE = 100  # of so many mutants, one is read alone
# Of the types that a column may be read as.
_TARGETS = {
    "string": pa.string(),
    "binary": pa.binary(),
    "integer": pa.int16(),
    "decimal": pa.decimal128(20, 3),
    "double": pa.float64(),
    "float": pa.float32(),
    "boolean": pa.bool_(),
}


@dataclass
class Report:
    """What a round has found.

    Attributes:
        mutants: how many mutants there were.
        accepted: how many of them native code read.
        faults: what does not hold, one line each.
    """

    mutants: int = 0
    accepted: int = 0
    faults: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Subject:
    """The messages of one table, and the plan for reading it whole."""

    decoder: Decoder
    events: TableEvents
    plan: Plan
    mutator: Mutator


class Recorder(Templates):
    """Templates that can keep events from the general path.

    Attributes:
        recording: whether they do.
        left: the positions of the events that the general path did not get.
    """

    __slots__ = ("left", "recording")

    def __init__(self) -> None:
        super().__init__()
        self.recording, self.left = False, list[int]()

    def decode(
        self,
        events: TableEvents,
        learned: LearnedTable,
        wire_of: WireOf,
        general: General,
        commit_ts: pa.Int64Array | None = None,
        candidates: pa.Int32Array | None = None,
    ) -> Decoded:
        """Decode as templates do; while recording, events that do not fit have no rows."""
        self.left = []

        def record(some: TableEvents, learn: KeepTemplate | None) -> Decoded:
            if not self.recording:
                return general(some, learn)
            self.left += some.positions
            return _nothing(learned.plan, len(some))

        return super().decode(events, learned, wire_of, record, commit_ts, candidates)


def _nothing(plan: Plan, count: int) -> Decoded:
    """Return what is decoded of events without rows."""
    columns = {item.name: pa.nulls(0, item.arrow) for item in plan.fields}
    if plan.rescued is not None:
        columns[plan.rescued] = pa.nulls(0, pa.string())
    no_numbers = pa.nulls(count, pa.int64())
    return Decoded(
        change_types=pa.nulls(0, pa.int8()),
        events=pa.nulls(0, pa.int32()),
        indexes=pa.nulls(0, pa.int32()),
        columns=columns,
        commit_ts=no_numbers,
        start_ts=no_numbers,
        build_ts=no_numbers,
        cluster_id=pa.nulls(count, pa.string()),
        placed=pa.array([False] * count),
    )


@lru_cache(maxsize=128)
def _subject(scenario: str, database: str, table: str) -> Subject:
    captured = _captured(scenario).only(database, table)
    options = make_options(tables=f"`{database}`.`{table}`")
    schema = captured.schema(tables=f"`{database}`.`{table}`")
    context = context_of_schema(schema, options)
    assert context is not None
    spec = read_spec(schema, options, context)
    records = [record for part in captured.partitions.values() for record in part]
    (chunk,) = Captured({}, {0: records}).fetch(Captured({}, {0: records}).ranges()[0])
    split = spec.decoder.split(chunk).tables[TableName(database, table)]
    events = _events(split, list(split.payloads), list(split.event_keys))
    protocol = spec.decoder.facts.name
    mutator = Mutator(list(events.payloads), *_ROWS[protocol], [each.commit_ts for each in spec.plan.boundaries()])
    return Subject(spec.decoder, events, spec.plan, mutator)


def _captured(scenario: str) -> Captured:
    return load(scenario).around_ddl(40) if scenario.startswith("stream.") else load(f"{scenario}.types")


def subjects(protocol: str) -> list[tuple[str, str, str]]:
    """Return (scenario, database, table) of all tables whose messages are changed."""
    found = []
    for scenario in SCENARIOS[protocol]:
        names = tables_with_rows(_captured(scenario))
        known = {*TABLES, "t_gen", "dflt_ubig"}
        found += [(scenario, *name) for name in names if name[1] in known or scenario.startswith("stream.")]
    return found


def other_plan(plan: Plan, chooser: random.Random) -> Plan:
    """Return a plan with other options, columns and types."""
    fields = list(plan.fields)
    if chooser.random() < 0.5:
        share = chooser.choice((0.1, 0.3, 0.8))
        fields = [_read_otherwise(item, chooser) if chooser.random() < share else item for item in fields]
    if chooser.random() < 0.3:
        fields = fields[chooser.randrange(2) :: 2] or fields
    operations = ("insert", "update", "delete")
    rescue = chooser.random() < 0.3
    return replace(
        plan,
        fields=tuple(fields),
        settings=Settings(
            time_zone=chooser.choice(("UTC", "UTC", "Asia/Shanghai")),
            zero_date=chooser.choice(("null", "fail")),
            invalid_utf8=chooser.choice(("replace", "fail")),
        ),
        operations=frozenset(operations if chooser.random() < 0.7 else chooser.sample(operations, 2)),
        preimages=chooser.random() < 0.7,
        rescue=rescue,
        rescued="_rescued" if rescue else None,
    )


def _read_otherwise(item: ReadField, chooser: random.Random) -> ReadField:
    """Return a column with another type that it can be read as."""
    allowed = ["string", *CONVERSIONS.get(category_of(item.arrow), ())]
    target = _TARGETS.get(chooser.choice(allowed), item.arrow)
    return replace(item, arrow=target)


def fuzz(protocol: str, mutants: int, seed: int, *, size: int = ROUND) -> Iterator[Report]:
    """Fuzz the native path of one protocol; yield what each round has found.

    Args:
        protocol: the protocol.
        mutants: how many mutants.
        seed: the same seed makes the same mutants.
        size: how many are in a round.
    """
    chooser = random.Random(f"native {seed} {protocol}")
    tables = subjects(protocol)
    chooser.shuffle(tables)
    for number in range(-(-mutants // size)):
        scenario, database, table = tables[number % len(tables)]
        subject = _subject(scenario, database, table)
        plan = subject.plan if number % 4 == 0 else other_plan(subject.plan, chooser)
        report = _round(subject, plan, min(size, mutants - number * size), chooser)
        where = (
            f"{protocol}, seed {seed}, rounds of {size}, round {number}: {scenario}, {database}.{table}, {_shown(plan)}"
        )
        report.faults = [f"{fault}\n  ({where})" for fault in report.faults[:_SHOWN]]
        yield report


class _Case:
    """One plan for one table, read by templates and by the general path.

    Args:
        subject: the table.
        plan: what is wanted of it.
        lessons: mutants of which templates are learned, each with its key.

    Raises:
        SchemaError: the table cannot be read as the plan wants it.
    """

    def __init__(self, subject: Subject, plan: Plan, lessons: Sequence[tuple[EventKey, bytes]]) -> None:
        self._decoder, self._like, self._plan = subject.decoder, subject.events, plan
        self._slow, self._general = replace(plan, native_path=False), Learned()
        self._learned = Learned()
        self._recorder = self._learned.of_table(subject.events.table, plan).kept(Recorder)
        self._decoder.decode(subject.events, plan, self._learned)
        for key, payload in lessons:
            try:
                self._decoder.decode(_events(self._like, [payload], [key]), plan, self._learned)
            except TiCDCSourceError:
                continue  # nothing was learned
        self._recorder.recording = True

    def accepted(self, events: TableEvents) -> tuple[Decoded, list[int]]:
        """Return what native code makes of events, and which it accepts.

        A cell that a kernel refuses makes templates leave a whole chunk, and give this kernel cells from then on.
        """
        self._decoder.decode(events, self._plan, self._learned)
        found = self._decoder.decode(events, self._plan, self._learned)
        left = set(self._recorder.left)
        return found, [event for event in range(len(events)) if event not in left]

    def check(self, events: TableEvents) -> tuple[list[int], list[str]]:
        """Return which events native code accepts, and in what the general path differs for them."""
        found, accepted = self.accepted(events)
        if not accepted:
            return accepted, []
        try:
            expected = self._decoder.decode(events.picked(accepted), self._slow, self._general)
        except TiCDCSourceError as error:
            return accepted, [f"the general path raises {type(error).__name__}: {error}"]
        return accepted, _differences(found, expected, accepted)

    def check_order(self, events: TableEvents, behind: Sequence[tuple[EventKey, bytes]]) -> list[str]:
        """Return which events the general path reads otherwise behind others, which are before each, than alone."""
        alone: dict[int, list[object]] = {}
        for event in range(len(events)):
            try:
                read = self._decoder.decode(events.picked([event]), self._slow, self._general)
            except TiCDCSourceError:  # it would end the read of all
                continue
            alone[event] = _of_event(read, 0)
        pairs = [
            pair for event in alone for pair in (behind[event], (events.event_keys[event], events.payloads[event]))
        ]
        if not pairs:
            return []
        keys, payloads = zip(*pairs, strict=True)
        together = self._decoder.decode(_events(events, list(payloads), list(keys)), self._slow, self._general)
        return [
            f"the general path reads it otherwise behind {behind[event][1]!r}: "
            f"key {events.event_keys[event]!r} payload {events.payloads[event]!r}"
            for number, (event, own) in enumerate(alone.items())
            if _of_event(together, 2 * number + 1) != own
        ]


def _of_event(decoded: Decoded, event: int) -> list[object]:
    """Return what was read of one event."""
    is_own = pc.equal(decoded.events, event)
    columns = [array.filter(is_own) for array in (decoded.change_types, *decoded.columns.values())]
    failure = decoded.failures.get(event)
    return [failure and failure.reason, *(bits for column in columns for bits in _bits(column))]


def _round(subject: Subject, plan: Plan, count: int, chooser: random.Random) -> Report:
    mutator, keys = subject.mutator, subject.events.event_keys
    drawn = [mutator.mutant(chooser) for _ in range(_LEARNED_MUTANTS if chooser.random() < 0.5 else 0)]
    lessons = [(keys[index], payload) for index, payload in drawn]
    try:
        case, other = _Case(subject, plan, lessons), _Case(subject, plan, lessons)
    except TiCDCSourceError:  # a column cannot be read as this plan wants it: the plain one will do
        return _round(subject, subject.plan, count, chooser)
    _, fitting = case.accepted(subject.events)
    made = [mutator.mutant(chooser, fitting) for _ in range(count)]
    payloads: list[bytes] | Binaries = [payload for _, payload in made]
    if chooser.random() < 0.5:
        payloads = Binaries.of(pa.array(payloads, pa.binary()))
    mutants = _events(subject.events, payloads, [_key(subject.events, index, plan, chooser) for index, _ in made])
    try:
        accepted, wrong = case.check(mutants)
        if not wrong and accepted:  # no kernel refuses one of these: they take arrays
            picked = mutants.picked(accepted)
            _, wrong = other.check(_events(picked, picked.payloads, list(picked.event_keys)))
        left = sorted(set(range(count)) - set(accepted))
        few = sorted(chooser.sample(left, min(len(left), -(-count // _ALONE))))
        behind = [(keys[made[event][0]], mutator.bases[made[event][0]].payload) for event in few]
        depending = case.check_order(mutants.picked(few), behind)
    except Exception as error:  # noqa: BLE001 (that is what is looked for)
        accepted, wrong, depending = [], [f"{type(error).__name__}: {error}"], []
    report = Report(count, len(accepted), depending)
    if not wrong:
        return report
    for key, payload in zip(mutants.event_keys, mutants.payloads, strict=True):
        try:
            alone = _events(mutants, [payload], [key])
            faults = [*case.check(alone)[1], *other.check(alone)[1]]
        except Exception as error:  # noqa: BLE001 (as above)
            faults = [f"{type(error).__name__}: {error}"]
        report.faults += [f"{fault}: key {key!r} payload {payload!r}" for fault in faults[:1]]
        if len(report.faults) >= _SHOWN:
            break
    report.faults = report.faults or [f"of many events, but of none alone: {fault}" for fault in wrong]
    return report


def _shown(plan: Plan) -> str:
    fields = ", ".join(f"{item.name} {item.arrow}" for item in plan.fields)
    return f"{plan.settings}, {sorted(plan.operations)}, preimages={plan.preimages}, rescue={plan.rescue}, {fields}"


def _key(events: TableEvents, index: int, plan: Plan, chooser: random.Random) -> EventKey:
    """Return the key of an event, sometimes that of another one, or one beside a change of columns."""
    chance, boundaries = chooser.random(), plan.boundaries()
    key = events.event_keys[index if chance < 0.8 else chooser.randrange(len(events))]
    if chance > 0.95 and boundaries and key is not None:
        return {**key, "ts": chooser.choice(boundaries).commit_ts + chooser.choice((-1, 0, 1))}
    return key


def _events(like: TableEvents, payloads: list[bytes] | Binaries, keys: list[EventKey]) -> TableEvents:
    """Return events of a table, each in a record of its own."""
    count = len(payloads)
    chunk = Chunk("fuzz", 0, list(range(count)), [0] * count, [None] * count, [None] * count)
    return TableEvents(chunk, like.table, range(count), [0] * count, payloads, keys)


def _differences(found: Decoded, expected: Decoded, accepted: Sequence[int]) -> list[str]:
    """Return in what native code and the general path differ for the events that native code accepted."""
    wrong = [f"the general path refuses it: {error}" for error in expected.failures.values()]
    counted = {name: getattr(expected, name) for name in ("replaced", "empty", "claimed", "key_only")}
    wrong += [f"the general path counts {count} {name}" for name, count in counted.items() if count]
    if wrong:
        return wrong
    picked = pa.array(accepted, pa.int32())
    own = pc.index_in(found.events, value_set=picked).cast(pa.int32())
    pairs = {
        "events": (own, expected.events),
        "change types": (found.change_types, expected.change_types),
        "indexes": (found.indexes, expected.indexes),
        "commit-ts": (found.commit_ts.take(picked), expected.commit_ts),
        "build-ts": (found.build_ts.take(picked), expected.build_ts),
        "cluster ids": (found.cluster_id.take(picked), expected.cluster_id),
    }
    if set(found.columns) != set(expected.columns):
        return [f"other columns: {list(found.columns)}, not {list(expected.columns)}"]
    pairs |= {f"column {name}": (found.columns[name], expected.columns[name]) for name in found.columns}
    for name, (one, other) in pairs.items():
        one.validate(full=True)
        if one.type != other.type or _bits(one) != _bits(other):
            rows = [row for row, (a, b) in enumerate(zip(one, other, strict=False)) if repr(a) != repr(b)][:1]
            shown = [(one[row], other[row]) for row in rows] or (one.type, other.type, len(one), len(other))
            wrong.append(f"other {name}: {shown}")
    return wrong


def _bits(array: pa.Array) -> list[pa.Array]:
    """Return arrays that are equal if all values are, bit for bit."""
    if pa.types.is_list(array.type):
        return [array.value_lengths(), *_bits(array.flatten())]
    if pa.types.is_floating(array.type):
        return [array.view(pa.int32() if array.type == pa.float32() else pa.int64())]
    return [array]
