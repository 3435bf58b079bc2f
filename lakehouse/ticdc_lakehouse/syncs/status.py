"""`_ticdc_sync`: a table in the lake with the status of each copied table, and the sync that writes them."""

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
# How a table that is set aside goes on: a person resumes it; it is tried again, after a fault; DDL explains its
# changes, or else it is read again from TiDB, if that is allowed; or it is read again from TiDB.
EndsBy = Literal["resume", "retry", "ddl", "heal"]
_TOLD = {
    "resume": "",
    "retry": ". The sync resumes the table by itself",
    "ddl": ". If later DDL of the table explains this, the sync resumes the table by itself",
    "heal": ". The sync will read the table again from TiDB",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Following:
    """Changes of the table are written."""

    word: ClassVar = "following"
    lacks: str | None = None  # what the copy lacks, so that it will be read again from TiDB
    complete_before: int | None = None  # its `complete_since` before it had bad records


@dataclass(frozen=True, slots=True, kw_only=True)
class Loading:
    """The rows of the table are read from TiDB, and its records from the stream are kept meanwhile.

    It is "healing" if the rows are read again, because the stream alone cannot keep the copy right. Records that were
    kept before then stay only if the table has a history.
    """

    reason: str | None = None  # why it heals
    at: int | None = None  # the TSO; None if TiDB has not given one yet
    kept_from: int | None = None  # the first micro-batch whose records are kept

    @property
    def word(self) -> str:
        return "loading" if self.reason is None else "healing"


@dataclass(frozen=True, slots=True, kw_only=True)
class SetAside:
    """The copy is not changed, and the records of the table are kept; `lacks` is as in `Following`."""

    word: ClassVar = "set aside"
    reason: str
    since: str  # ISO 8601, UTC
    ends_by: EndsBy = "resume"
    kept_from: int | None = None
    lacks: str | None = None
    complete_before: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """`tables` or `skip` leaves the table out, so the target misses its changes."""

    word: ClassVar = "left out"


Identity: TypeAlias = Mapping[str, Any]  # what the status table says of the sync that writes it
Phase: TypeAlias = Following | Loading | SetAside | LeftOut
_PHASES: dict[str, type[Phase]] = {
    "following": Following, "loading": Loading, "healing": Loading, "set aside": SetAside, "left out": LeftOut,
}  # fmt: skip

_MOST_PAUSES = 50  # that a status keeps; the oldest ones are joined
_ATTEMPT = "ticdc.attempt"  # a property without a meaning, to try a write
_SYNC = "ticdc.sync"  # the property of the table with the `Identity`
_FILE = "_ticdc_sync.json"
_FILE_VERSION = 1
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """A time in which a copy did not follow its table, so its state at a commit-ts in it is unknown."""

    reason: str  # why it stopped
    ended: str  # when the copy went on, in ISO 8601, UTC
    complete_since: int | None  # the status's `complete_since` before the pause
    from_ts: int  # the copy had every change up to this commit-ts before the pause
    to_ts: int  # the copy had every change up to this commit-ts after the pause
    rows: int | None = None  # how many rows were read from TiDB; None if kept records were written instead


@dataclass(frozen=True, slots=True, kw_only=True)
class TableStatus:
    """Replication status of one table."""

    table_name: str  # the table, as messages spell it
    target: str  # the name of the target in SQL
    phase: Phase = Following()  # what happens to its changes; only `steps.step` changes it
    kind: Kind | None = None  # `table` for a merged target, `log` for a log of all changes; None before the first rows
    complete_since: int | None = None  # the commit-ts from which the copy has had all rows; None if unknown
    resolved_ts: int | None = None  # the copy has every change up to this commit-ts, itself included
    loaded_ts: int | None = None  # the TSO of its last load: changes up to it are not applied
    create_sql: str | None = None  # its `CREATE TABLE` as of `loaded_ts`, as earlier DDL may be missing in the topics
    batch_id: int = -1  # the micro-batch that changed it last
    images: int = 0  # how many changed rows the sync has written
    last_error: str | None = None  # why it was last set aside
    maintained_ms: int | None = None  # when it was last maintained, or created: milliseconds since the epoch
    maintained_batch: int | None = None  # its `batch_id` at that time
    bad_records: int = 0  # how many of its records are in quarantine, so that their changes are missing
    bad_until: int | None = None  # no bad record has a larger commit-ts
    columns: tuple[str, ...] = ()  # the columns that the sync has seen in the target
    target_batch: int | None = None  # the last micro-batch that a commit of the target records
    target_content: str | None = None  # the `identity` of that commit, as the number may be used again
    pauses: tuple[Pause, ...] = ()  # the times in which it did not follow, the oldest first

    @property
    def state(self) -> str:
        return self.phase.word

    @property
    def reason(self) -> str | None:
        """Why it is not following, and how it goes on; its last error, if it is following."""
        if isinstance(self.phase, SetAside):
            return f"{self.phase.reason}{_TOLD[self.phase.ends_by]}"
        if isinstance(self.phase, LeftOut):
            return "`tables` or `skip` leaves it out"
        return (self.phase.reason if isinstance(self.phase, Loading) else None) or self.last_error

    @property
    def kept_from(self) -> int | None:
        """The first micro-batch whose records are kept because they are not written yet."""
        return self.phase.kept_from if isinstance(self.phase, (Loading, SetAside)) else None

    @property
    def lacks(self) -> tuple[str | None, int | None]:
        """What it lacks, so that it will be read again, and its `complete_since` before that."""
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
        """Whether the copy has all rows of the table, and follows it."""
        return self.state == "following" and self.complete_since is not None and not self.bad_records

    def without_changes(self, resolved_ts: int | None) -> TableStatus:
        """Return the status after a micro-batch, whether it had changes of the table or not."""
        if resolved_ts is None or self.state != "following" or self.bad_records:
            return self
        return replace(self, resolved_ts=max(self.resolved_ts or 0, resolved_ts))

    def lag(self, now: float) -> float | None:
        """Return the age of the resolved ts in seconds; `now` is in seconds since the epoch."""
        return None if self.resolved_ts is None else round(now - seconds(self.resolved_ts), 3)

    def as_row(self) -> dict[str, Any]:
        flat = {**asdict(self), **asdict(self.phase), "state": self.state}
        return {name: flat.get(name) for name in _SCHEMA.names if name != "written"}

    def as_json(self, now: float) -> dict[str, object]:
        """Return it as JSON values, also with times for its commit-ts, and its lag."""
        times = {"complete_since_time": utc(self.complete_since), "resolved_time": utc(self.resolved_ts)}
        return {**self.as_row(), "reason": self.reason, **times, "lag_seconds": self.lag(now)}

    def with_bad_records(self, count: int, until: int) -> TableStatus:
        """Return the status with `count` bad records, none of which has a commit-ts after `until`."""
        return replace(self, bad_records=count, bad_until=max(self.bad_until or 0, until))

    def without_bad_records(self) -> TableStatus:
        phase = Following() if isinstance(self.phase, Following) else self.phase
        return replace(self, phase=phase, bad_records=0, bad_until=None)

    def after_pause(self, before: TableStatus, reason: str, ended: str, rows: int | None = None) -> TableStatus:
        """Return the status with a pause that has ended, if the commit-ts of its start and end are known."""
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
    """`_ticdc_sync.json`: a copy of the table in a small file, which can be read without Spark.

    It is written after each commit of the table, in the folder of the tables, or in the checkpoint's folder if they are
    in a catalog. If `pyarrow.fs` cannot write it, that is no error: readers use the table instead.
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
        """Write the rows of the table. A failure is logged, and this process does not try again."""
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
            _log.info("%s cannot be written, so --status has to start Spark: %s", self.place, self._files.shown(error))

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
    """The table of statuses. Each write replaces all its rows in one commit, and then its file."""

    def __init__(self, spark: SparkSession, config: SyncConfig) -> None:
        self.name = config.layout.own("_ticdc_sync")
        self.lock = threading.RLock()  # two commits of one process must not conflict
        self._file = StatusFile(config)
        self._spark, self._engine = spark, config.format
        self.written = 0  # how often the statuses have been written, as of the last read or write here

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
        """Make sure that a sync may write the tables, before it starts; create the status table if it does not exist.

        `query_id` is None if the sync has no checkpoint yet. `committed` is the last micro-batch that is committed in
        the checkpoint, -1 if there is none. Returns the identity of the sync.
        """
        target, read = self.opened(), sorted(topics)
        if not target.exists():
            if committed >= 0:
                raise CheckpointError(
                    f"The checkpoint has micro-batch {committed}, and {self.name} does not exist: the tables of the "
                    "checkpoint are gone, or in another place. Set their folder or catalog, or restore them. Or start "
                    "over with a new checkpoint"
                )
            columns = [NewColumn(field.name, field.dataType) for field in _SCHEMA]
            sync = json.dumps({"writer": query_id, "topics": read})
            try:
                target.create(columns, {**target.small_properties, _SYNC: sync})
            except Exception:  # of any catalog
                target = self.opened()
                if not target.exists():
                    raise  # otherwise another sync has just created the table
        before = self.identity(target)
        if before["topics"] != read:
            raise TargetError(
                f"The tables beside {self.name} are copies of {', '.join(before['topics'])}, and this sync reads "
                f"{', '.join(read)}. Give each sync its own folder or catalog. If these are topics of the same "
                f"changefeed, confirm it: ALTER TABLE {self.name} SET TBLPROPERTIES "
                f"('{_SYNC}' = '{json.dumps({**before, 'topics': read})}')"
            )
        self._check_writer(before, query_id)
        missing = [NewColumn(each.name, each.dataType) for each in _SCHEMA if each.name not in target.columns()]
        if missing:  # an older release has created it
            target.add_columns(missing)
        return before

    def change(self, change: Callable[[Identity], Identity], writer: str | None = None) -> Identity:
        """Change the identity, and return it; fails if another query than `writer` has written the tables."""
        with self.lock:
            target = self.opened()
            before = self.identity(target)
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
        """Write a property, and read the statuses: this needs the same of the store as the writes of a table."""
        with self.lock:
            self.opened().set_properties({_ATTEMPT: uuid4().hex})
        self.read()

    def _check_writer(self, identity: Identity, query_id: str | None) -> None:
        if identity["writer"] not in (None, query_id):
            raise CheckpointError(
                f"The tables beside {self.name} are written by a sync with another checkpoint"
                f"{', and the configured folder has no checkpoint' if query_id is None else ''}. Use the folder of "
                "that checkpoint, or restore it if it is lost. Or start over with a new folder of tables and a new "
                "checkpoint"
            )

    def identity(self, target: Target | None = None) -> Identity:
        """Return the identity of the sync that writes the tables: its topics, its writer, and what it has lost."""
        try:
            identity = loads((target or self.opened()).properties().get(_SYNC, "null"))
            return {**identity, "topics": list(identity["topics"]), "writer": identity["writer"]}
        except (KeyError, TypeError, ValueError):
            raise TargetError(
                f"{self.name} exists, and was not created by a sync. Give the sync another folder or catalog"
            ) from None


def statuses_of(spark: SparkSession, config: SyncConfig) -> list[TableStatus]:
    table = StatusTable(spark, config)
    if not table.opened().exists():
        raise TargetError(
            f"{table.name} does not exist: no sync has written tables there. Check the folder or the catalog; if it is "
            "right, wait for the first micro-batch of the sync"
        )
    statuses = table.read()
    return [statuses[name] for name in sorted(statuses)]


def _status_of(row: Mapping[str, Any]) -> TableStatus:
    """Return the status in a row, which lacks columns if an older release wrote it."""

    def known(kind: type[Any]) -> dict[str, Any]:
        return {each.name: row[each.name] for each in fields(kind) if row.get(each.name) is not None}

    phase = _PHASES[row["state"]]
    if row["state"] == "loading":
        row = {**row, "reason": None}  # early releases wrote a last error there, which does not mean healing
    given = {
        **known(TableStatus),
        "phase": phase(**known(phase)),
        "columns": tuple(row.get("columns") or ()),
        "pauses": tuple(Pause(**pause) for pause in row.get("pauses") or ()),
    }
    return TableStatus(**given)


def now_text() -> str:
    """Return the current time in ISO 8601, UTC."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
