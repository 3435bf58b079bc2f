"""Files of TiCDC's storage sink: which there are, and a range of them → chunks."""

from ticdc_source.sources.storage.changefeed import CHECKPOINT, Changefeed, Look
from ticdc_source.sources.storage.fetch import FileFetcher

__all__ = ["CHECKPOINT", "Changefeed", "FileFetcher", "Look"]
