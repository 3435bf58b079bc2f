"""The checkpoint of a sync: of its stream, and of its lake, so that a start notices if either of them was restored.

Spark reads the files, as only Spark knows their file system. `lake.json` is written at the end of each micro-batch that
has changed a table. If the lake is newer than this file, the process died in between, or the checkpoint was restored,
and the stream reads those changes again. If it is older, it lacks changes that the stream will not read again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypeAlias

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from ticdc_lakehouse.syncs.config import SyncConfig
from ticdc_lakehouse.syncs.status import Identity, SetAside, StatusTable, TableStatus, now_text
from ticdc_lakehouse.syncs.steps import Rules, TargetLacks, step
from ticdc_lakehouse.targets.opening import existing_target
from ticdc_lakehouse.targets.sessions import in_thread
from ticdc_lakehouse.targets.target import CommitFacts, LastBatch, Target
from ticdc_source.developer_api import check_permission, loads, of_ms, parse_table
from ticdc_source.errors import CheckpointError

FOR_EVER = 2**63 - 1  # no commit-ts is larger
_CLOCKS_DIFFER_S = 60.0  # of this machine and of TiDB's placement driver, at most


def text_of_file(spark: SparkSession, path: str) -> str | None:
    """Return the text of a file, or of the only file in a folder; None if there is none."""
    try:  # given twice: for a single path that is missing, Spark logs a traceback
        rows = spark.read.text([path, path], wholetext=True).collect()
    except AnalysisException:
        return None
    return str(rows[0][0]) if rows else None


class StreamCheckpoint:
    """The checkpoint of a streaming query."""

    def __init__(self, spark: SparkSession, folder: str) -> None:
        self._spark = spark
        self.folder = folder
        self._query_id: str | None = None

    def query_id(self) -> str | None:
        if self._query_id is None:  # it never changes
            try:
                self._query_id = str(loads(self._text("metadata") or "")["id"])
            except (KeyError, TypeError, ValueError):  # Spark creates the file, and then writes it
                return None
        return self._query_id

    def committed(self) -> int:
        """Return Spark's number of the last micro-batch that was committed; -1 if there is none."""
        commits = f"{self.folder}/commits"
        try:  # given twice, as above
            files = self._spark.read.format("binaryFile").load([commits, commits]).select("path").collect()
        except AnalysisException:
            return -1
        names = (row["path"].rpartition("/")[2] for row in files)
        return max((int(name) for name in names if name.isdecimal()), default=-1)

    def starts(self) -> Mapping[str, Mapping[str, int]] | None:
        """Return the offsets at which the stream started, by topic and partition; None if no longer known."""
        return starts_of(self._text("offsets/0") or "")

    def _text(self, name: str) -> str | None:
        return text_of_file(self._spark, f"{self.folder}/{name}")


def starts_of(text: str) -> Mapping[str, Mapping[str, int]] | None:
    """Return where a stream started, from the text of its first offset file, whose last line has the end."""
    try:
        started = loads(text.splitlines()[-1])["$init"]
    except (IndexError, KeyError, TypeError, ValueError):
        return None
    return {topic: dict(offsets) for topic, offsets in started.items() if not topic.startswith("$")}


def lost_before(config: SyncConfig, starts: Mapping[str, Mapping[str, int]] | None) -> int | None:
    """Return the commit-ts up to which topics may have lost changes before the stream started; None if they have not.

    A stream that starts at offset 0 everywhere has lost nothing. Otherwise, whatever is lost was written before now.
    """
    if starts is not None and not config.may_lose_changes and not any(any(each.values()) for each in starts.values()):
        return None
    return newest_ts()


def claimed(
    config: SyncConfig, starts: Callable[[], Mapping[str, Mapping[str, int]] | None], writer: str, before: Identity
) -> Identity:
    """Return the identity of a sync that the status table has from the first micro-batch of a process on.

    `exact_since` is the commit-ts since which the targets are the database at the resolved ts of each micro-batch; None
    if they are not. If `before` names another writer or none, this is the first micro-batch, and `starts` is called for
    the offsets at which the stream started.
    """
    begins, may_lose = before["writer"] != writer, config.may_lose_changes
    exact_since = 0 if begins else before.get("exact_since")
    if config.consistency != "resolved":
        exact_since = None
    elif exact_since is None:  # changes up to now may be applied that are later than their micro-batch
        exact_since = newest_ts()
    now = {**before, "writer": writer, "may_lose": may_lose, "exact_since": exact_since}
    if begins or "lost_until" not in before:
        return {**now, "lost_until": lost_before(config, starts())}
    return now if before.get("may_lose", may_lose) == may_lose else {**now, "lost_until": newest_ts()}


def newest_ts() -> int:
    """Return a TSO that is at least as large as any that TiDB has given until now."""
    return of_ms(int((time.time() + _CLOCKS_DIFFER_S) * 1000))


_NEW = ".new"  # suffix of the file while it is written
# The last micro-batch that a target has, and the one that it lacks although the checkpoint says that it had it.
_Held: TypeAlias = tuple[LastBatch, CommitFacts | None]


@dataclass(frozen=True, slots=True)
class LakeMark:
    """A state of the lake, as `lake.json` has it."""

    written: int = 0  # how often the statuses had been written
    targets: Mapping[str, int] = field(default_factory=dict)  # by table, the last micro-batch that a commit records
    contents: Mapping[str, str] = field(default_factory=dict)  # by table, the `identity` of that commit
    # the number of a micro-batch in the lake minus Spark's number: after a checkpoint was restored, Spark gives numbers
    # again that the lake has for other changes
    shift: int = 0


class LakeMarks:
    """The `LakeMark` of a checkpoint, compared with the lake at each start, and written with each micro-batch."""

    def __init__(
        self, spark: SparkSession, config: SyncConfig, checkpoint: StreamCheckpoint, status: StatusTable
    ) -> None:
        self._spark, self._config, self._checkpoint, self._status = spark, config, checkpoint, status
        self._path = f"{config.checkpoint}/lake.json"
        self._last = LakeMark()
        self.shift = 0
        self.lacking: dict[str, str] = {}  # by table, what its target lacks

    def committed(self) -> int:
        """Return the lake's number of the last micro-batch that was committed."""
        return self._checkpoint.committed() + self.shift

    def compared(self, statuses: Mapping[str, TableStatus]) -> dict[str, TableStatus]:
        """Compare the lake with the checkpoint, as either, or a part of the lake, may have been restored.

        Returns the statuses; a table whose target is an older version is set aside.
        """
        self._last = mark = self._read()
        if mark.written > self._status.written and not (not statuses and self._are_dropped(mark.targets)):
            raise CheckpointError(
                f"The checkpoint is newer than {self._status.name}: this table, and perhaps others, was restored to an "
                "older version, and the stream does not read the missing changes again. Restore the newest version of "
                "the tables. Or restore the whole checkpoint as it was when the older version was written, or "
                "earlier. Or start over with new tables and a new checkpoint"
            )
        self.shift = mark.shift
        last = self.committed()
        known = {
            name: replace(each, target_batch=mark.targets[name], target_content=mark.contents.get(name))
            if _number(mark.targets.get(name)) > _number(each.target_batch)
            else each
            for name, each in statuses.items()
        }
        held = self._held(known, mark)
        numbers = [its.number for its, _ in held.values()]
        for each in known.values():
            numbers += map(_number, (each.batch_id, each.target_batch, each.kept_from))
        newest = max(numbers, default=-1)
        if newest > last + 1:  # Spark gives numbers again that the lake has for other changes
            self.shift += newest - last
            until = newest_ts()  # changes up to it come again, in micro-batches that do not end at their resolved ts
            self._status.change(lambda now: now if now.get("exact_since") is None else {**now, "exact_since": until})
            self._save(replace(mark, shift=self.shift))

        def needed(name: str) -> int:
            """Return the micro-batch that the target had by the checkpoint; older releases did not write it."""
            return _number(mark.targets.get(name)) if mark.written else last

        # At once, not with the next change of the table: the checkpoint would go on without what the target lacks.
        return {
            name: self._compared_target(each, *held[name], needed(name)) if name in held else each
            for name, each in known.items()
        }

    def _are_dropped(self, tables: Iterable[str]) -> bool:
        """Whether no table has a target any more, because somebody has dropped them all to start over."""
        layout = self._config.layout
        targets = [layout.target(parse_table(name), end) for name in tables for end in ("", "__log")]
        return all(existing_target(self._spark, each) is None for each in targets)

    def _held(self, statuses: Mapping[str, TableStatus], mark: LakeMark) -> dict[str, _Held]:
        """Return the last micro-batch of the writer that each target has; targets without a known one are left out."""
        writer = self._checkpoint.query_id() or ""

        def of_target(status: TableStatus) -> tuple[str, _Held] | None:
            name = status.table_name
            target = existing_target(self._spark, status.target)  # if it is missing, the next change is an error
            last = None if target is None else target.last_batch(writer)
            if target is None or last is None:
                return None
            had = CommitFacts(app_id=writer, batch_id=mark.targets.get(name), content=mark.contents.get(name))
            return name, (last, had if _lacks(target, last, had) else None)

        written = [
            each
            for name, each in statuses.items()
            if each.state in ("following", "set aside")
            and (each.kind is not None or each.target_batch is not None)
            and self._config.selects(parse_table(name))
        ]
        with ThreadPoolExecutor(self._config.parallel, thread_name_prefix="ticdc-sync compare") as pool:
            return dict(each for each in pool.map(in_thread(self._spark, of_target), written) if each is not None)

    def _compared_target(
        self, status: TableStatus, last: LastBatch, lacks: CommitFacts | None, needed: int
    ) -> TableStatus:
        """Return the status of a table, which is set aside if its target lacks what the stream does not read again.

        `last` is the last micro-batch that its target has, `lacks` the one that it lacks although the checkpoint says
        that it had it, and `needed` the one from which the stream reads on.
        """
        held, had = last.number, _number(status.target_batch)
        if lacks is None and held >= min(had, needed):
            if held < 0:
                return status if held >= had else replace(status, target_batch=None, target_content=None, columns=())
            content = None if last.facts is None else last.facts.identity
            its = replace(status, target_batch=held, target_content=content)
            return its if held >= had else replace(its, columns=())  # it may have had more of them
        is_loaded_again = self._config.tidb is not None and status.complete_since is None and status.kind != "log"
        if is_loaded_again:
            return status
        now = f"ends with micro-batch {held}" if held < had else "was written without it"
        reason = (
            f"{status.target} had micro-batch {max(had, needed)}, and {now} now: it was restored to an older version, "
            f"without the changes in between. Restore its newest version, and resume {status.table_name}. Or restore "
            "the whole checkpoint as it was at the older version or earlier, and resume the table. Or load the table "
            f"again with [tidb]: stop the sync, drop the target, and delete the table's row from {self._status.name}"
        )
        self.lacking[status.table_name] = reason
        if lacks is not None:  # the next start asks for it again
            status = replace(status, target_batch=lacks.batch_id, target_content=lacks.content)
        if isinstance(status.phase, SetAside):
            return status
        return step(status, TargetLacks(reason), Rules(), now_text())[0]

    def write(self, statuses: Mapping[str, TableStatus]) -> None:
        """Write the mark if it has changed; without a job of Spark, as each micro-batch does this."""
        targets = {name: each.target_batch for name, each in statuses.items() if each.target_batch is not None}
        contents = {name: statuses[name].target_content or "" for name in targets if statuses[name].target_content}
        mark = LakeMark(self._status.written, targets, contents, self.shift)
        if mark != self._last:
            self._save(mark)

    def _save(self, mark: LakeMark) -> None:
        jvm: Any = self._spark._jvm  # noqa: SLF001 (Spark alone knows the file system)
        hadoop = jvm.org.apache.hadoop.fs
        conf: Any = self._spark._jsparkSession  # noqa: SLF001 (as above)
        path, new = hadoop.Path(self._path), hadoop.Path(f"{self._path}{_NEW}")
        files = path.getFileSystem(conf.sessionState().newHadoopConf())
        check_permission()
        stream = files.create(new, True)  # noqa: FBT003 (Java has no names of arguments)
        stream.write(json.dumps(asdict(mark)).encode())
        stream.close()
        files.delete(path, False)  # noqa: FBT003 (as above)
        files.rename(new, path)
        self._last = mark

    def _read(self) -> LakeMark:
        """Return the mark; an empty one if an older release wrote the checkpoint."""
        text = text_of_file(self._spark, self._path)
        new = None if text else text_of_file(self._spark, f"{self._path}{_NEW}")  # killed before it was renamed
        try:
            return LakeMark(**loads(text or new or "{}"))
        except (TypeError, ValueError):
            if not text:  # killed while it wrote the first one: no micro-batch has ended
                return LakeMark()
            raise CheckpointError(
                f"{self._path} is damaged. Restore the checkpoint, or start over with new tables and a new checkpoint"
            ) from None


def _lacks(target: Target, last: LastBatch, had: CommitFacts) -> bool:
    """Whether a target lacks a micro-batch although it has later ones, because it was restored and then written to.

    A commit that the engine no longer lists does not count as lacking.
    """
    if had.batch_id is None or had.content is None or last.facts is None or last.number < had.batch_id:
        return False
    if (last.number, last.facts.identity) == (had.batch_id, had.content):
        return False
    numbers = []
    for facts in (commit.facts for commit in target.commits()):
        if facts.app_id == had.app_id and facts.batch_id is not None and facts.batch_id <= had.batch_id:
            if (facts.batch_id, facts.identity) == (had.batch_id, had.content):
                return False
            numbers.append(facts.batch_id)
    return bool(numbers)


def _number(batch: int | None) -> int:
    return -1 if batch is None else batch
