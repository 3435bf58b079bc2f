"""`_ticdc_sync`: a table in the lake that says how each copied table is, and which sync writes it."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from datetime import datetime, timezone
from typing import Any, ClassVar, Literal, TypeAlias
from uuid import uuid4

from pyspark.sql import SparkSession
from pyspark.sql.types import ArrayType, DataType, LongType, StringType, StructField, StructType

from ticdc_lakehouse.errors import TargetError
from ticdc_lakehouse.syncs.config import SyncConfig
from ticdc_lakehouse.targets.opening import open_target
from ticdc_lakehouse.targets.target import CommitFacts, NewColumn, Target
from ticdc_source.developer_api import DDLEvent, MetricFiles, loads, parse_table, redacted, seconds, utc
from ticdc_source.errors import CheckpointError

Kind = Literal["table", "log"]
# What ends it that a table is set aside: a person; time, after a fault; DDL that explains its changes, or else TiDB,
# if it may be asked; or TiDB.
EndsBy = Literal["resume", "retry", "ddl", "heal"]
_TOLD = {
    "resume": "",
    "retry": ". The sync resumes the table by itself",
    "ddl": ". If DDL of the table that comes later explains it, the table goes on by itself",
    "heal": ". Soon the table is read again from TiDB",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Following:
    """Its changes are written."""

    word: ClassVar = "following"
    lacks: str | None = None  # so that it will be read again from TiDB
    complete_before: int | None = None  # `complete_since` before its records in quarantine


@dataclass(frozen=True, slots=True, kw_only=True)
class Loading:
    """Its rows are read from TiDB, and what the stream brings meanwhile is kept.

    It is "healing" if they are read again because the stream alone cannot keep it right. Records from before are then
    kept only for a history.
    """

    reason: str | None = None  # why it heals
    at: int | None = None  # the TSO; None if TiDB has not given one yet
    kept_from: int | None = None  # the first micro-batch whose records are kept

    @property
    def word(self) -> str:
        return "loading" if self.reason is None else "healing"


@dataclass(frozen=True, slots=True, kw_only=True)
class SetAside:
    """The copy stays as it is, and what the stream brings is kept; it still lacks what it lacked as `Following`."""

    word: ClassVar = "set aside"
    reason: str
    since: str  # ISO 8601, UTC
    ends_by: EndsBy = "resume"
    kept_from: int | None = None
    lacks: str | None = None
    complete_before: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """`tables` or `skip` leaves the table out, so its changes are lost to the target."""

    word: ClassVar = "left out"


Identity: TypeAlias = Mapping[str, Any]  # what the status table says of the sync that writes it
Phase: TypeAlias = Following | Loading | SetAside | LeftOut
_PHASES: dict[str, type[Phase]] = {
    "following": Following, "loading": Loading, "healing": Loading, "set aside": SetAside, "left out": LeftOut,
}  # fmt: skip

_MOST_PAUSES = 50  # that a status remembers one by one
_ATTEMPT = "ticdc.attempt"  # a property that says nothing
_SYNC = "ticdc.sync"  # the property of the table that names the sync
_FILE = "_ticdc_sync.json"
_FILE_VERSION = 1
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """A time in which a copy did not follow its table, so that it has no state of a commit-ts in it."""

    reason: str  # why it stopped
    ended: str  # when it went on, in ISO 8601, UTC
    complete_since: int | None  # the status's `complete_since` before it
    from_ts: int  # the last commit-ts up to which the copy was known to have every change before it
    to_ts: int  # the commit-ts up to which it had every change after it
    rows: int | None = None  # how many rows were read from TiDB; None if the records that were kept have ended it


@dataclass(frozen=True, slots=True, kw_only=True)
class TableStatus:
    """How the copy of a table is."""

    table_name: str  # the table, as messages spell it
    target: str  # the name of the target in SQL
    phase: Phase = Following()  # what happens to its changes; only `steps.step` lets another one follow
    kind: Kind | None = None  # `table` if each row stands once, `log` if every change does
    complete_since: int | None = None  # the commit-ts from which the copy has had all rows; None if unknown
    resolved_ts: int | None = None  # the copy has every change up to this commit-ts, itself included
    loaded_ts: int | None = None  # the TSO of the load that made it complete: changes up to it are not applied
    create_sql: str | None = None  # its `CREATE TABLE` as of `loaded_ts`: earlier DDL may be missing in the topics
    batch_id: int = -1  # the micro-batch that changed it last
    images: int = 0  # how many changed rows the sync has written
    last_error: str | None = None  # why it was set aside the last time
    maintained_ms: int | None = None  # when its files were tidied last, or it was created: milliseconds since the epoch
    maintained_batch: int | None = None  # the micro-batch that had changed it last then
    bad_records: int = 0  # how many of its records are in quarantine since it was created: their changes are missing
    bad_until: int | None = None  # no bad record has a larger commit-ts
    columns: tuple[str, ...] = ()  # the columns that the sync has seen in the target
    target_batch: int | None = None  # the last micro-batch that a commit of the target records
    target_content: str | None = None  # what that commit records of it, as its number may be given again
    pauses: tuple[Pause, ...] = ()  # the times in which it did not follow, the oldest first

    @property
    def state(self) -> str:
        return self.phase.word

    @property
    def reason(self) -> str | None:
        """Why it is not following, and what ends that; of a table that follows, its last error."""
        if isinstance(self.phase, SetAside):
            return f"{self.phase.reason}{_TOLD[self.phase.ends_by]}"
        if isinstance(self.phase, LeftOut):
            return "`tables` or `skip` leaves it out"
        return (self.phase.reason if isinstance(self.phase, Loading) else None) or self.last_error

    @property
    def kept_from(self) -> int | None:
        """The first micro-batch whose records are kept, because they are not written yet."""
        return self.phase.kept_from if isinstance(self.phase, (Loading, SetAside)) else None

    @property
    def lacks(self) -> tuple[str | None, int | None]:
        """What it lacks, so that it will be read again; and its `complete_since` before that."""
        phase = self.phase
        return (phase.lacks, phase.complete_before) if isinstance(phase, (Following, SetAside)) else (None, None)

    @property
    def known_ddl(self) -> tuple[DDLEvent, ...]:
        if self.create_sql is None or self.loaded_ts is None:
            return ()
        table = parse_table(self.table_name)
        return (DDLEvent(position=0, index=0, commit_ts=self.loaded_ts, table=table, query=self.create_sql,
                         type="create table"),)  # fmt: skip

    @property
    def set_aside_since(self) -> str | None:
        return self.phase.since if isinstance(self.phase, SetAside) else None

    @property
    def is_complete(self) -> bool:
        """Whether the copy has all rows of the table, and goes on."""
        return self.state == "following" and self.complete_since is not None and not self.bad_records

    def without_changes(self, resolved_ts: int | None) -> TableStatus:
        """Return the status after a micro-batch that may have had no changes of the table."""
        if resolved_ts is None or self.state != "following" or self.bad_records:
            return self
        return replace(self, resolved_ts=max(self.resolved_ts or 0, resolved_ts))

    def lag(self, now: float) -> float | None:
        """Return how many seconds the copy is behind, by its resolved ts and the time in seconds since 1970."""
        return None if self.resolved_ts is None else round(now - seconds(self.resolved_ts), 3)

    def as_row(self) -> dict[str, Any]:
        flat = {**asdict(self), **asdict(self.phase), "state": self.state}
        return {name: flat.get(name) for name in _SCHEMA.names if name != "written"}

    def as_json(self, now: float) -> dict[str, object]:
        """Return it as values of JSON, with its commit-ts as times too, and with its lag."""
        times = {"complete_since_time": utc(self.complete_since), "resolved_time": utc(self.resolved_ts)}
        return {**self.as_row(), "reason": self.reason, **times, "lag_seconds": self.lag(now)}

    def with_bad_records(self, count: int, until: int) -> TableStatus:
        """Return the status once so many records are bad, none newer than a commit-ts."""
        return replace(self, bad_records=count, bad_until=max(self.bad_until or 0, until))

    def without_bad_records(self) -> TableStatus:
        phase = Following() if isinstance(self.phase, Following) else self.phase
        return replace(self, phase=phase, bad_records=0, bad_until=None)

    def after_pause(self, before: TableStatus, reason: str, ended: str, rows: int | None = None) -> TableStatus:
        """Add a pause that has ended, if anybody knows its commit-ts."""
        if before.resolved_ts is None or self.resolved_ts is None:
            return self
        pause = Pause(reason=reason, ended=ended, complete_since=before.complete_since, from_ts=before.resolved_ts,
                      to_ts=self.resolved_ts, rows=rows)  # fmt: skip
        *earlier, last = *before.pauses, pause
        if earlier and earlier[-1].to_ts == last.from_ts:  # the kept records that follow a load
            earlier[-1] = replace(earlier[-1], to_ts=last.to_ts)
        elif last.from_ts < last.to_ts:
            earlier.append(last)
        if len(earlier) > _MOST_PAUSES:
            first, second, *rest = earlier
            earlier = [replace(second, complete_since=first.complete_since, from_ts=first.from_ts), *rest]
        return replace(self, pauses=tuple(earlier))


# The type of a column, by the annotation of its field.
_TYPES: Mapping[str, DataType] = {
    **dict.fromkeys(("str", "str | None", "Kind | None", "EndsBy"), StringType()),
    **dict.fromkeys(("int", "int | None"), LongType()),
    "tuple[str, ...]": ArrayType(StringType()),
}


def _columns(*kinds: type[Any], but: Collection[str] = ()) -> list[StructField]:
    types = {each.name: _TYPES[str(each.type)] for kind in kinds for each in fields(kind) if each.name not in but}
    return [StructField(name, type_) for name, type_ in types.items()]


_FLAT = _columns(TableStatus, *_PHASES.values(), but=("phase", "pauses"))
_SCHEMA = StructType([
    *_FLAT[:3],
    StructField("state", StringType()),
    *_FLAT[3:],
    StructField("pauses", ArrayType(StructType(_columns(Pause)))),
    StructField("written", LongType()),
])  # fmt: skip


class StatusFile:
    """`_ticdc_sync.json`: a copy of the table in a small file, so that whoever asks for it need not start Spark.

    It is written after each commit of the table, beside the tables of a folder, or in the checkpoint's folder if they
    are in a catalog. A store that `pyarrow.fs` cannot write is no error: the table is asked then.
    """

    def __init__(self, config: SyncConfig) -> None:
        folder = config.checkpoint if config.path is None else config.layout.folder
        self._files = MetricFiles(folder.removeprefix("file://") if folder.startswith("file:///") else folder)
        self._table = redacted(config.layout.own("_ticdc_sync"))
        self._secrets = {
            json.dumps(each, ensure_ascii=False)[1:-1]: redacted(each)
            for each in (config.path, config.checkpoint, folder)
            if each is not None and redacted(each) != each
        }
        self.place = f"{redacted(folder)}/{_FILE}"
        self._is_off = False

    def write(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Write the rows of the table. After a failure, which is logged, this process tries no more."""
        if self._is_off:
            return
        whole = {"version": _FILE_VERSION, "table": self._table, "written": now_text(), "statuses": list(rows)}
        text = json.dumps(whole, ensure_ascii=False)
        for secret, shown in self._secrets.items():
            text = text.replace(secret, shown)
        try:
            self._files.put(_FILE, text.encode("utf-8", "backslashreplace"))
        except OSError as error:
            self._is_off = True
            _log.info("%s cannot be written, so that --status starts Spark: %s", self.place, self._files.shown(error))

    def read(self) -> tuple[list[TableStatus], str, str] | None:
        """Return the statuses, when they were written, and the place; None without a file that this release reads."""
        try:
            data = self._files.get(_FILE)
            whole: Mapping[str, Any] = {} if data is None else loads(data)
            if whole["version"] != _FILE_VERSION or whole["table"] != self._table:
                return None
            return [_status_of(row) for row in whole["statuses"]], str(whole["written"]), self.place
        except (AttributeError, LookupError, OSError, TypeError, ValueError):
            return None


class StatusTable:
    """The table of statuses. It is small, and each write replaces it whole in one commit, and then its file."""

    def __init__(self, spark: SparkSession, config: SyncConfig) -> None:
        self.name = config.layout.own("_ticdc_sync")
        self.lock = threading.RLock()  # two commits of one process must not conflict
        self._file = StatusFile(config)
        self._spark, self._engine = spark, config.format
        self.written = 0  # how often the statuses have been written, as far as this object has read or written them

    def opened(self) -> Target:
        return open_target(self._spark, self.name, self._engine)

    def read(self) -> dict[str, TableStatus]:
        target = self.opened()
        if not target.exists():
            return {}
        columns = target.columns()
        rows = target.frame().select([name for name in _SCHEMA.names if name in columns]).collect()
        named = [row.asDict(recursive=True) for row in rows]
        self.written = max([self.written, *(each.get("written") or 0 for each in named)])
        statuses = [_status_of(each) for each in named]
        return {each.table_name: each for each in statuses}

    def check(self, query_id: str | None, committed: int, topics: Iterable[str]) -> Identity:
        """Make sure that a sync may write the tables, before it starts; create the status table if there is none.

        The id of its streaming query is None if it has no checkpoint yet, and `committed` is the last micro-batch that
        has ended by the checkpoint, -1 if none has. Returns what the status table says of the sync.
        """
        target, read = self.opened(), sorted(topics)
        if not target.exists():
            if committed >= 0:
                raise CheckpointError(
                    f"The checkpoint has micro-batch {committed}, and {self.name} does not exist: the tables that it "
                    "belongs to are gone, or elsewhere. Restore them, or give their folder or catalog; or start again "
                    "with a new checkpoint"
                )
            columns = [NewColumn(field.name, field.dataType) for field in _SCHEMA]
            sync = json.dumps({"writer": query_id, "topics": read})
            try:
                target.create(columns, {**target.small_properties, _SYNC: sync})
            except Exception:  # of any catalog
                target = self.opened()
                if not target.exists():
                    raise  # otherwise another sync has just created it
        before = self._identity(target)
        if before["topics"] != read:
            raise TargetError(
                f"The tables beside {self.name} are copies of {', '.join(before['topics'])}, and this sync reads "
                f"{', '.join(read)}. Give each sync a folder or catalog of its own. If these are topics of the same "
                f"changefeed, say so: ALTER TABLE {self.name} SET TBLPROPERTIES "
                f"('{_SYNC}' = '{json.dumps({**before, 'topics': read})}')"
            )
        self._check_writer(before, query_id)
        missing = [NewColumn(each.name, each.dataType) for each in _SCHEMA if each.name not in target.columns()]
        if missing:  # an older release has created it
            target.add_columns(missing)
        return before

    def identity(self) -> Identity:
        """Return what the table says of the sync that writes it: its topics, its writer, and what it has lost."""
        return self._identity(self.opened())

    def change(self, change: Callable[[Identity], Identity], writer: str | None = None) -> Identity:
        """Change what the table says of the sync, and return it; if a `writer` is given, no other query may."""
        with self.lock:
            target = self.opened()
            before = self._identity(target)
            if writer is not None:
                self._check_writer(before, writer)
            now = change(before)
            if now != before:
                target.set_properties({_SYNC: json.dumps(now)})
            return now

    def write(self, statuses: Mapping[str, TableStatus]) -> None:
        self.written += bool(statuses)  # the rows say it
        named = [{**statuses[name].as_row(), "written": self.written} for name in sorted(statuses)]
        rows = [tuple(each[name] for name in _SCHEMA.names) for each in named]
        with self.lock:
            frame = self._spark.createDataFrame(rows, _SCHEMA).coalesce(1)
            self.opened().overwrite(frame, CommitFacts())
            self._file.write(named)

    def attempt(self) -> None:
        """Write something, and read the statuses: whatever a table needs of the store is needed here."""
        with self.lock:
            self.opened().set_properties({_ATTEMPT: uuid4().hex})
        self.read()

    def _check_writer(self, identity: Identity, query_id: str | None) -> None:
        if identity["writer"] not in (None, query_id):
            raise CheckpointError(
                f"The tables beside {self.name} are written by a sync with another checkpoint"
                f"{', and the folder given for this one has none' if query_id is None else ''}. If that checkpoint is "
                "lost, or its folder was changed, restore it; or start again with a new folder of tables and a new "
                "checkpoint"
            )

    def _identity(self, target: Target) -> Identity:
        try:
            identity = loads(target.properties().get(_SYNC, "null"))
            return {**identity, "topics": list(identity["topics"]), "writer": identity["writer"]}
        except (KeyError, TypeError, ValueError):
            raise TargetError(
                f"{self.name} exists, and no sync has made it. Give the sync another folder or catalog"
            ) from None


def statuses_of(spark: SparkSession, config: SyncConfig) -> list[TableStatus]:
    table = StatusTable(spark, config)
    if not table.opened().exists():
        raise TargetError(
            f"{table.name} does not exist: no sync has written tables there. Check the folder or the catalog; if it is "
            "right, the sync has not got to its first micro-batch"
        )
    statuses = table.read()
    return [statuses[name] for name in sorted(statuses)]


def _status_of(row: Mapping[str, Any]) -> TableStatus:
    """Return the status in a row; one that an older release has written lacks columns."""

    def known(kind: type[Any]) -> dict[str, Any]:
        return {each.name: row[each.name] for each in fields(kind) if row.get(each.name) is not None}

    phase = _PHASES[row["state"]]
    if row["state"] == "loading":
        row = {**row, "reason": None}  # early releases wrote a last error there, and it does not heal
    given = {
        **known(TableStatus),
        "phase": phase(**known(phase)),
        "columns": tuple(row.get("columns") or ()),
        "pauses": tuple(Pause(**pause) for pause in row.get("pauses") or ()),
    }
    return TableStatus(**given)


def now_text() -> str:
    """Return the time in ISO 8601, UTC: people ask since when a table has been set aside, and when it went on."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
