"""How a storage sink writes CSV. A row's key has the version of its table, which the path of the file says.

Schema files stay as they are: they define what rows do not say.
"""

from __future__ import annotations

import orjson

from ticdc_source.protocols.csv.lines import CSVCutter
from ticdc_source.protocols.file_format import FileFormat

__all__ = ["FILES"]

FILES = FileFormat(
    extension=".csv",
    cutter=CSVCutter,
    of_schema=orjson.dumps,
    of_checkpoint=lambda ts: orjson.dumps({"checkpoint-ts": ts}),
)
