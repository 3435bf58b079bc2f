"""What is in a topic: its protocol, settings, tables, DDL and lag, without Spark. `ticdc-source inspect` shows it."""

from ticdc_source.driver.inspection.inspect import inspect
from ticdc_source.driver.inspection.report import Inspection
from ticdc_source.driver.inspection.scan import Limits, ScanProgress

__all__ = ["Inspection", "Limits", "ScanProgress", "inspect"]
