"""The option `tableDDL`: one or several `CREATE TABLE` texts."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ticdc_source.errors import OptionError
from ticdc_source.events import TableName
from ticdc_source.schema.mysql_ddl.statements import Create, Step, steps
from ticdc_source.schema.mysql_ddl.tokens import available

__all__ = ["declared_tables"]

_QUOTED = re.compile(r"`(?:[^`]|``)*`|'(?:[^']|'')*'")


def declared_tables(text: str) -> Mapping[TableName, Create]:
    """Return the tables that the texts create; a database may be "".

    Raises:
        OptionError: sqlglot is not installed, or the text has anything but `CREATE TABLE` statements.
    """
    if not available():
        msg = (
            "Option 'tableDDL' needs sqlglot, which the driver's Python does not have: "
            'pip install "ticdc-source[ddl]"'
        )
        raise OptionError(msg)
    try:
        found = _steps(text)
    except ValueError as error:
        msg = f"Option 'tableDDL': not a CREATE TABLE as SHOW CREATE TABLE prints it: {error}"
        raise OptionError(msg) from None
    tables = {step.table: step for step in found if isinstance(step, Create)}
    if not tables or len(tables) < len(found):
        msg = (
            "Option 'tableDDL': expected CREATE TABLE statements as SHOW CREATE TABLE prints them, and nothing else; "
            f"it begins {text.strip()[:40]!r}"
        )
        raise OptionError(msg)
    return tables


def _steps(text: str) -> list[Step]:
    """Parse the texts as TiDB prints them: a backslash in a text stands for itself.

    `SHOW CREATE TABLE` doubles the quotes of a label and leaves backslashes as they are (corpus of TiCDC's encoders,
    table `c_enum`). Text that cannot be parsed this way was written by hand, and is parsed as SQL.
    """
    printed = _QUOTED.sub(lambda match: match[0].replace("\\", "\\\\") if match[0][0] == "'" else match[0], text)
    try:
        return steps(printed, "")
    except ValueError:
        if printed == text:
            raise
        return steps(text, "")
