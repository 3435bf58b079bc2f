"""Sessions of TiDB: PyMySQL logs in and asks questions; the rows of a table come as packets, past its cursors.

PyMySQL makes Python objects of each value, which costs ten times as much as reading a row here. So this module, and no
other, uses its private names; `_SUPPORTED` is the range of releases with them, and a test checks each name. Errors have
no password.
"""

from __future__ import annotations

import importlib
import io
import logging
import re
import ssl
import struct
import time
from array import array
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import cached_property
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from ticdc_source.errors import AccessRefusedError, DataLossError, OptionError, TiCDCSourceError, TiDBUnavailableError
from ticdc_source.kernels.arrays import Binaries, Spans
from ticdc_source.kernels.native import native
from ticdc_source.options.options import Options
from ticdc_source.options.parsers import Secret
from ticdc_source.schema.table_name import TableName
from ticdc_source.schema.tso import utc

if TYPE_CHECKING:
    import pymysql

_log = logging.getLogger(__name__)
_T = TypeVar("_T")

_SUPPORTED = ((1, 2), (1, 3))  # PyMySQL: from the first on, and before the second
_CONNECT_S = 10  # to connect, and for each answer while logging in
_ANSWER_S = 300  # for the next bytes of an answer: TiDB may have to sort a range before its first row
_BUFFER = 1 << 20  # bytes that may have arrived and wait to be read
_RETRIES = 3  # after a lost connection, without a row in between
_PAUSE_S = 1.0
_ALL = (1 << 64) - 1  # MySQL's LIMIT for no limit
# Results are MySQL's text in UTF-8, TIMESTAMP in UTC; a read may take any time. The last two may be set otherwise for
# the whole server: answers, even about columns, would lack rows, or the current time would be in the past.
_SETTINGS = (
    "SET time_zone = '+00:00', sql_mode = '', character_set_results = 'utf8mb4', max_execution_time = 0, "
    f"sql_select_limit = {_ALL}, tidb_low_resolution_tso = 0"
)
# Otherwise all reads may be as of another TSO, whatever `tidb_snapshot` is. TiDB has it from 6.4 on.
_OWN_MOMENT = "SET tidb_enable_external_ts_read = 0"

# MySQL's numbers of errors, and TiDB's own from 8000 on.
_NO_PRIVILEGE = frozenset({1044, 1142, 1143, 1227})
_LOGIN_REFUSED = frozenset({1045, 1130, 1251, 1698, 3118, 3159, 8022})
_NO_TLS, _UNREACHABLE, _LOST = 2026, 2003, frozenset({2006, 2013, 2014, 1053, 1927})
_COLLECTED = re.compile(r"GC life time is shorter|older than (?:the )?GC safe ?point|GC too early", re.IGNORECASE)
_NO_MYSQL = (ValueError, LookupError, struct.error, AssertionError)  # PyMySQL's, when a greeting is none
_GO_DURATION, _UNIT_S = re.compile(r"([\d.]+)(h|ms|m|s)"), {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_UNKNOWN_VARIABLE = 1193

# A packet of a result: u24le length, u8 sequence number, payload (MySQL's client/server protocol, "MySQL Packets").
_HEADER, _LARGEST = 4, 0xFFFFFF  # a payload of the largest length goes on in the next packet
_END, _ERROR = 0xFE, 0xFF
_SHORTEST_LONG_CELL = 9  # bytes of a row that begins with a cell of 16 MiB or more: fewer end the result
_BOUNDS = 8  # bytes of the bounds of a row
_FUTURE = re.compile(r"future time|in the future", re.IGNORECASE)


class Session(AbstractContextManager["Session"]):
    """A session of the present, or of the past with `as_of`, which connects at the first query.

    After a lost connection it connects again and repeats the query, which must change nothing, some times.

    Args:
        options: the server and the user.
        answer_s: the longest wait for the next bytes of an answer: TiDB may have to read a whole table first.

    Raises:
        OptionError: the options lack the server or the user.
    """

    def __init__(self, options: Options, *, answer_s: int = _ANSWER_S) -> None:
        if options.tidb_url is None or options.tidb_user is None:
            missing = "tidb.url" if options.tidb_url is None else "tidb.user"
            raise OptionError(f"Option '{missing}' is missing: TiDB is read with 'tidb.url' and 'tidb.user'")
        (self._host, self._port), self._user = options.tidb_url, options.tidb_user
        self._password = options.tidb_password or Secret("")
        self._options = options
        self._answer_s = answer_s
        self._at: int | None = None
        self._table: TableName | None = None
        self._connection: Any = None

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def server(self) -> str:
        return f"[{self._host}]:{self._port}" if ":" in self._host else f"{self._host}:{self._port}"

    def close(self) -> None:
        """Close the connection, even in the middle of a result; the next query opens another."""
        connection, self._connection = self._connection, None
        if connection is not None and connection.open:
            connection.close()

    def as_of(self, tso: int | None, table: TableName | None = None) -> None:
        """Read as of this TSO from now on (None: the present); errors name the table.

        Raises:
            OptionError: (here, or at the next connection) the TSO is in TiDB's future.
            DataLossError: TiDB's garbage collection may have removed row versions of it.
        """
        self._table = table
        if self._at != tso:
            self._at = tso  # errors name it, and each new connection uses it
            if self._connection is not None:
                try:
                    self.rows(self._moment_sql)
                except TiCDCSourceError:
                    self.close()  # it still has another TSO
                    raise

    def now(self) -> int:
        """TiDB's current TSO: all earlier commits can be read as of it."""

        def asked() -> int:
            self._asked("BEGIN")
            ((tso,),) = self._asked("SELECT @@tidb_current_ts")
            self._asked("ROLLBACK")
            return int(tso or 0)

        return self._retried(asked)

    def collected_after_s(self) -> float | None:
        """The seconds of history that TiDB keeps (`tidb_gc_life_time`); None if unlimited or unknown."""
        try:
            ((text, is_on),) = self.rows("SELECT @@global.tidb_gc_life_time, @@global.tidb_gc_enable")
        except TiCDCSourceError:  # hidden from this user
            return None
        if (is_on or "").upper() in ("0", "OFF"):
            return None
        parts = _GO_DURATION.findall(text or "")
        return sum(float(number) * _UNIT_S[unit] for number, unit in parts) if parts else None

    def rows(self, sql: str) -> list[tuple[str | None, ...]]:
        """All rows of an answer, as MySQL's text.

        Raises:
            TiCDCSourceError: TiDB refuses the statement, or does not answer.
        """
        return self._retried(lambda: self._asked(sql))

    def blocks(self, sql: str, size: int, most: int, *, skip: int = 0, uses_native: bool = True) -> Iterator[Binaries]:
        """Yield the row packets of an answer after the first `skip`, in blocks, as they arrive; see `row_blocks`.

        After a lost connection it goes on after the yielded rows, so the statement must order them.

        Raises:
            TiDBUnavailableError: the connection is lost, or silent for too long, even after retries.
            TiCDCSourceError: TiDB reports another error, maybe in the middle of the answer.
        """
        retries, position = 0, skip
        while True:
            before = position
            try:
                rest = sql if not position else f"{sql} LIMIT {position}, {_ALL}"
                for rows in self._blocks(rest, size, most, uses_native=uses_native):
                    yield rows
                    position += len(rows)
            except TiDBUnavailableError as error:
                retries = self._lost_again(error, 0 if position > before else retries)
            else:
                return

    def _retried(self, ask: Callable[[], _T]) -> _T:
        retries = 0
        while True:
            try:
                return ask()
            except TiDBUnavailableError as error:
                retries = self._lost_again(error, retries)

    def _lost_again(self, error: TiDBUnavailableError, retries: int) -> int:
        """Wait for the next try and return its number; raise the error after the last one."""
        self.close()
        if retries == _RETRIES:
            raise error
        _log.warning("TiDB is asked again after an error: %s", error)
        time.sleep(_PAUSE_S)
        return retries + 1

    def _asked(self, sql: str) -> list[tuple[str | None, ...]]:
        connection = self._connected()
        try:
            with connection.cursor() as cursor:
                cursor.execute(sql)
                return [tuple(row) for row in cursor.fetchall()]
        except self._pymysql.MySQLError as error:
            raise self._explained(error) from None

    def _blocks(self, sql: str, size: int, most: int, *, uses_native: bool) -> Iterator[Binaries]:
        connection = self._connected()
        is_whole = False
        try:
            connection.query(sql, unbuffered=True)
            result, connection._result = connection._result, None  # noqa: SLF001 (the rows are read here, not there)
            result.unbuffered_active, result.connection = False, None
            yield from row_blocks(connection, size, most, uses_native=uses_native)
            is_whole = True
        except self._pymysql.MySQLError as error:
            raise self._explained(error) from None
        except (OSError, IndexError) as error:  # PyMySQL's at a packet without bytes
            raise self._lost(str(error)) from None
        finally:
            if not is_whole:  # the rest of the answer would be taken for the next query's
                self.close()

    def _connected(self) -> Any:  # noqa: ANN401 (PyMySQL's, with its private names)
        if self._connection is None:
            self._connection = self._login()
            try:
                self._asked(_SETTINGS)
                self._read_own_moment()
                if self._at is not None:
                    self._asked(self._moment_sql)
            except TiCDCSourceError:
                self.close()
                raise
        return self._connection

    def _read_own_moment(self) -> None:
        try:
            with self._connection.cursor() as cursor:
                cursor.execute(_OWN_MOMENT)
        except self._pymysql.MySQLError as error:
            if error.args[:1] != (_UNKNOWN_VARIABLE,):
                raise self._explained(error) from None

    def _login(self) -> Any:  # noqa: ANN401
        options = self._options
        mode = options.tidb_ssl_mode or ("preferred" if options.tidb_ssl_ca is None else "verify_identity")
        context = _tls_context(options, mode)
        try:
            connection = self._pymysql.connections.Connection(
                host=self._host,
                port=self._port,
                user=self._user,
                password=self._password.reveal().encode(),
                charset="utf8mb4",
                autocommit=None,
                connect_timeout=_CONNECT_S,
                read_timeout=_CONNECT_S,
                write_timeout=_CONNECT_S,
                program_name="ticdc-source",
                defer_connect=True,
                ssl_disabled=True,  # so that it loads no certificates
            )
            connection.ssl, connection.ctx = context is not None, context
            connection._ssl_required = mode != "preferred"  # noqa: SLF001 (else it does without if TiDB has no TLS)
            connection.connect()
        except self._pymysql.MySQLError as error:
            raise self._explained(error) from None
        except _NO_MYSQL:
            raise self._refused(_UNREACHABLE, "what answers there does not speak MySQL's protocol") from None
        except RuntimeError as error:  # a login that needs the package `cryptography`
            raise AccessRefusedError(f"TiDB {self.server}: {error}. Install it, or use TLS: 'tidb.ssl.mode'") from None
        connection.decoders = {}  # values stay text
        connection._read_timeout = self._answer_s  # noqa: SLF001 (the socket's, from the next answer on)
        connection._rfile = io.BufferedReader(connection._rfile.detach(), _BUFFER)  # noqa: SLF001 (for `row_blocks`)
        return connection

    @cached_property
    def _pymysql(self) -> ModuleType:
        return _pymysql()

    @property
    def _moment_sql(self) -> str:
        return f"SET tidb_snapshot = '{self._at or ''}'"

    def _explained(self, error: pymysql.MySQLError) -> TiCDCSourceError:
        code, text = error.args if len(error.args) == 2 else (0, str(error))  # noqa: PLR2004 (a number and a text)
        return self._refused(code, str(text))

    def _refused(self, code: int, text: str) -> TiCDCSourceError:
        address, user, password = self.server, self._user, self._password.reveal()
        text = text.replace(password, "…") if password else text
        moment = "" if self._table is None else f" of {self._table}"
        moment += "" if self._at is None else f" as of TSO {self._at} ({utc(self._at)})"
        if code == _NO_TLS or (code == _UNREACHABLE and "SSL" in text):
            return AccessRefusedError(f"TLS with TiDB {address} fails: {text}. Check 'tidb.ssl.mode' and 'tidb.ssl.ca'")
        if code == _UNREACHABLE:
            return TiDBUnavailableError(f"No TiDB answers at 'tidb.url' {address}: {text}")
        if code in _LOST or code == 0:
            return self._lost(text)
        if code in _LOGIN_REFUSED:
            return AccessRefusedError(f"TiDB {address} refuses the login of user '{user}': {text}")
        if code in _NO_PRIVILEGE:
            table = self._table or "the table"
            return AccessRefusedError(
                f"TiDB {address}: user '{user}' needs the privilege SELECT on {table} (GRANT SELECT ON {table} TO "
                f"'{user}'): {text}"
            )
        if _FUTURE.search(text):
            return OptionError(f"Option 'snapshot.at' lies in TiDB's future (rows{moment}): {text}")
        if _COLLECTED.search(text):
            return DataLossError(
                f"TiDB {address} no longer has the rows{moment}: {text}. Let it keep row versions for longer than a "
                "read takes (SET GLOBAL tidb_gc_life_time = '24h'), and read a later moment"
            )
        return TiCDCSourceError(f"TiDB {address} cannot be read{moment}: {text} (error {code})")

    def _lost(self, text: str) -> TiDBUnavailableError:
        reading = "" if self._table is None else f" while {self._table} was read"
        return TiDBUnavailableError(
            f"The connection to TiDB {self.server} was lost{reading}: {text}. Check TiDB and the network, then run "
            "the query again"
        )


def _tls_context(options: Options, mode: str) -> ssl.SSLContext | None:
    if mode == "disabled":
        return None
    if mode in ("preferred", "required"):  # no certificates are loaded in vain: that takes 50 ms
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return context
    try:
        context = ssl.create_default_context(cafile=options.tidb_ssl_ca)
    except OSError as error:
        raise AccessRefusedError(
            f"Option 'tidb.ssl.ca': the file cannot be read as PEM certificates: {error}"
        ) from None
    context.check_hostname = mode == "verify_identity"
    # MySQL's and TiDB's own certificates do not pass it (Python 3.13 sets it).
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def _pymysql() -> ModuleType:
    try:
        pymysql = importlib.import_module("pymysql")  # an extra
    except ImportError:
        raise AccessRefusedError(
            "Reading from TiDB needs PyMySQL, on the driver and on all executors: pip install 'ticdc-source[tidb]'"
        ) from None
    first, after = _SUPPORTED
    if not first <= pymysql.VERSION[:2] < after:
        installed = ".".join(map(str, pymysql.VERSION[:3]))
        raise AccessRefusedError(
            f"PyMySQL {installed} is installed, but >=1.2,<1.3 is needed: pip install 'ticdc-source[tidb]'"
        )
    return pymysql


class _Cut(NamedTuple):
    """The result of `cut_packets`, native or not: the bounds of rows, and the index after the last one."""

    bounds: bytes
    after: int


def cut_packets(data: bytes, base: int) -> _Cut:
    """Find the row packets in a result's bytes, up to the first that is cut off or not a row.

    `base` is added to the bounds of their payloads: two int32 for each.
    """
    bounds: list[int] = []
    at, end_of_data = 0, len(data)
    while at + _HEADER < end_of_data:
        start = at + _HEADER
        size = data[at] | data[at + 1] << 8 | data[at + 2] << 16
        end = start + size
        first = data[start]
        if not 0 < size < _LARGEST or end > end_of_data:
            break
        if first == _ERROR or (first == _END and size < _SHORTEST_LONG_CELL):
            break
        bounds += (start + base, end + base)
        at = end
    return _Cut(array("i", bounds).tobytes(), at)


def row_blocks(connection: Any, size: int, most: int, *, uses_native: bool = True) -> Iterator[Binaries]:  # noqa: ANN401
    """Yield the rows of a result in blocks, without an object per row.

    Rows are cut out of the bytes that have arrived. PyMySQL reads packets that are cut off, have 16 MiB or more, or end
    the result.

    Args:
        size: about the bytes of a block; a single row may have more.
        most: the most rows of a block, unless more arrive at once.

    Raises:
        pymysql.MySQLError: the server reports an error in place of a row, or the connection is lost.
        OSError, IndexError: no bytes arrive in time; a packet has no bytes.
    """
    cut = cut_packets if native is None or not uses_native else native.cut_packets
    parts, bounds, in_block, headers = list[bytes](), list[bytes](), 0, 0
    is_whole = False
    while not is_whole:
        found = cut(connection._rfile.peek(), in_block)  # noqa: SLF001
        rows = len(found.bounds) // _BOUNDS
        if rows:
            parts.append(connection._rfile.read(found.after))  # noqa: SLF001
            bounds.append(found.bounds)
            headers += rows
            connection._next_seq_id = (connection._next_seq_id + rows) % 256  # noqa: SLF001 (compared with packets)
        else:
            packet = connection._read_packet()  # noqa: SLF001
            is_whole = packet.is_eof_packet()
            if not is_whole:
                parts.append(packet.get_all_data())
                bounds.append(array("i", [in_block, in_block + len(parts[-1])]).tobytes())
        if rows or not is_whole:
            in_block += len(parts[-1])
        count = sum(map(len, bounds)) // _BOUNDS
        if count and (is_whole or in_block >= size or count >= most):
            all_bounds = memoryview(b"".join(bounds)).cast("i")
            yield Binaries(Spans(b"".join(parts), all_bounds, in_block - headers * _HEADER))
            parts, bounds, in_block, headers = [], [], 0, 0
