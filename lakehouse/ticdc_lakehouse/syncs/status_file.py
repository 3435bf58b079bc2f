"""`_ticdc_sync.json`: the statuses of a sync in a small file, so that whoever asks for them need not start Spark.

The table `_ticdc_sync` is the truth; the file is a copy, written after each commit of the table, beside the tables of a
folder, or in the checkpoint's folder if they are in a catalog. It has the time at which it was written. Nothing but
`ticdc-lakehouse sync --status` reads it. A store that `pyarrow.fs` cannot write is no error: the table is asked then.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, NamedTuple

from ticdc_source.developer_api import MetricFiles, loads, without_credentials

if TYPE_CHECKING:
    from ticdc_lakehouse.syncs.config import SyncConfig

__all__ = ["StatusFile", "WrittenStatuses"]

_log = logging.getLogger(__name__)
_NAME = "_ticdc_sync.json"
_VERSION = 1


class WrittenStatuses(NamedTuple):
    """What a file says.

    Attributes:
        written: when it was written, in ISO 8601, UTC.
        place: the file, without what may be secret.
        rows: the statuses, as rows of the table.
    """

    written: str
    place: str
    rows: list[dict[str, Any]]


class StatusFile:
    """The file of one sync."""

    def __init__(self, config: SyncConfig) -> None:
        folder = config.checkpoint if config.path is None else config.layout.folder
        self._files = MetricFiles(folder.removeprefix("file://") if folder.startswith("file:///") else folder)
        self._table = without_credentials(config.layout.own("_ticdc_sync"))
        self._secrets = {
            json.dumps(each, ensure_ascii=False)[1:-1]: without_credentials(each)
            for each in (config.path, config.checkpoint, folder)
            if each is not None and without_credentials(each) != each
        }
        self.place = f"{without_credentials(folder)}/{_NAME}"
        self._is_off = False

    def write(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Write the rows of the table. After a failure, which is logged, this process tries no more: it takes long."""
        if self._is_off:
            return
        whole = {
            "version": _VERSION,
            "table": self._table,
            "written": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "statuses": list(rows),
        }
        text = json.dumps(whole, ensure_ascii=False)
        for secret, shown in self._secrets.items():
            text = text.replace(secret, shown)
        try:
            self._files.put(_NAME, text.encode("utf-8", "backslashreplace"))
        except OSError as error:
            self._is_off = True
            _log.info("%s cannot be written, so that --status starts Spark: %s", self.place, self._files.shown(error))

    def read(self) -> WrittenStatuses | None:
        """Return what the file says; None if there is none, or none that this release understands."""
        try:
            data = self._files.get(_NAME)
            whole: Mapping[str, Any] = {} if data is None else loads(data)
            if whole["version"] != _VERSION or whole["table"] != self._table:
                return None
            return WrittenStatuses(str(whole["written"]), self.place, list(whole["statuses"]))
        except (OSError, KeyError, TypeError, ValueError):
            return None
