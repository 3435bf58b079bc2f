"""`TiDBConfig`: where a sync reads the rows that its topics do not have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ticdc_lakehouse.snapshots.queries import TiDBAddress, check_url
from ticdc_source.errors import OptionError

__all__ = ["TiDBConfig"]


@dataclass(frozen=True, kw_only=True)
class TiDBConfig:
    """Where a sync reads the rows that were there before the first change in the topics; its `repr` shows no secret.

    Attributes:
        url: the address of a TiDB server, `jdbc:mysql://host:4000/`.
        user: the user, who needs SELECT on the tables.
        password: the password.
        rows_per_range: how many rows a task reads; of a table with many regions, it reads a region.
        properties: other settings of MySQL's JDBC driver, such as `sslMode`, and of TiDB (`sessionVariables`).
    """

    url: str = field(repr=False)
    user: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    rows_per_range: int = 200_000
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        """Check all that can be checked without TiDB.

        Raises:
            OptionError: the address is none of MySQL's, a setting would change values, or a number is too small.
        """
        check_url(self.url, self.address.given())
        if self.rows_per_range < 1:
            msg = f"tidb.rows_per_range = {self.rows_per_range}: it must be 1 or more"
            raise OptionError(msg)

    @property
    def address(self) -> TiDBAddress:
        """The address and who reads it."""
        return TiDBAddress(self.url, self.user, self.password, self.properties)
