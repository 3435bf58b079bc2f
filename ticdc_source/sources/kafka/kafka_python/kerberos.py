"""Kerberos: kafka-python's mechanism GSSAPI, with the keytab and the principal of a login.

kafka-python's own takes what the environment says (`KRB5CCNAME`, `KRB5_CLIENT_KTNAME`), which all of a process share.
Here the optional package `gssapi` gets credentials for each login (RFC 4752; MIT's credential stores). Its ticket is in
memory, and Kerberos' library renews it from the keytab.
"""

from __future__ import annotations

import hashlib
import importlib
import time
from pathlib import Path
from types import ModuleType
from typing import Protocol

import kafka.errors
from kafka.net.sasl import register_sasl_mechanism
from kafka.net.sasl.gssapi import SaslMechanismGSSAPI

from ticdc_source.errors import AccessRefusedError, KafkaUnavailableError
from ticdc_source.options.logins import KerberosLogin
from ticdc_source.sources.kafka.patience import Cause, Patience

_PAUSE_SECONDS = 0.5
_UNREACHABLE = frozenset({2529639068, 2529639132})  # KRB5_KDC_UNREACH, KRB5_REALM_CANT_RESOLVE: negative, in 32 bits
_ADVICE = "Check kafka.sasl.jaas.config, kafka.sasl.kerberos.service.name, krb5.conf and the clocks"


class _Credentials(Protocol):
    """What is used of `gssapi.Credentials`."""

    lifetime: int | None


class KerberosSession:
    """What each connection of a client logs in with.

    Raises:
        AccessRefusedError: `gssapi` is missing, or Kerberos gives no ticket.
        KafkaUnavailableError: Kerberos does not answer in time.
    """

    def __init__(self, login: KerberosLogin, patience: Patience) -> None:
        self.gssapi = _gssapi()
        self.login = login
        if login.keytab is not None and not Path(login.keytab).is_file():
            msg = f"Option 'kafka.sasl.jaas.config': there is no keytab {login.keytab} on this machine"
            raise AccessRefusedError(msg)
        self._await_ticket(patience.apart("there is no ticket for the login"))
        register_sasl_mechanism("GSSAPI", _mechanism, overwrite=True)

    def _await_ticket(self, patience: Patience) -> None:
        while True:
            try:
                _ = self.credentials().lifetime  # asks for the ticket
            except self.gssapi.exceptions.GSSError as error:
                if not _is_unreachable(error):
                    msg = f"Kerberos gives no ticket for the login: {error}. {_ADVICE}"
                    raise AccessRefusedError(msg) from None
                patience.failed("Kerberos", Cause(str(error), is_permanent=True))
            else:
                patience.answered()
                return
            try:
                patience.check()
            except KafkaUnavailableError as end:
                msg = f"There is no ticket for the login at Kafka: {patience.failures_text()}. {_ADVICE}"
                raise KafkaUnavailableError(msg) from end
            time.sleep(min(_PAUSE_SECONDS, patience.left_ms / 1000))

    def credentials(self) -> _Credentials:
        """Return credentials with a ticket that is valid; the default ones without a login module.

        Raises:
            GSSError: there is no ticket.
        """
        login, gssapi = self.login, self.gssapi
        name = login.principal and gssapi.Name(login.principal, gssapi.NameType.kerberos_principal)
        store = {}
        if login.keytab is not None:
            cache = hashlib.sha256(f"{login.keytab}\0{login.principal}".encode()).hexdigest()
            store = {"client_keytab": f"FILE:{login.keytab}", "ccache": f"MEMORY:ticdc-{cache}"}
        elif login.ticket_cache is not None:
            store = {"ccache": login.ticket_cache}
        credentials: _Credentials = gssapi.Credentials(name=name or None, usage="initiate", store=store or None)
        return credentials


def _gssapi() -> ModuleType:
    try:
        return importlib.import_module("gssapi")
    except (ImportError, OSError):
        msg = (
            "kafka.sasl.mechanism=GSSAPI needs the package gssapi where the driver and the executors run (pip install "
            "gssapi, which needs the development files of Kerberos)"
        )
        raise AccessRefusedError(msg) from None


def _mechanism(**config: object) -> SaslMechanismGSSAPI:
    """Make the mechanism of a connection; other users of kafka-python in this process get its own."""
    session = config.get("sasl_kerberos_name")
    if not isinstance(session, KerberosSession):
        return SaslMechanismGSSAPI(**config)
    return _Kerberos(session, str(config.get("host", "")))


class _Kerberos(SaslMechanismGSSAPI):  # type: ignore[misc]  # kafka-python has no types
    """kafka-python's mechanism, with the credentials of a session."""

    def __init__(self, session: KerberosSession, host: str) -> None:
        gssapi, login = session.gssapi, session.login
        self.auth_id = ""  # whoever has the ticket, and nobody else
        self._is_done = self._is_authenticated = False
        self._errors: type[Exception] = gssapi.exceptions.GSSError
        try:
            name = gssapi.Name(f"{login.service}@{login.domain or host}", gssapi.NameType.hostbased_service)
            self._client_ctx = gssapi.SecurityContext(
                name=name, creds=session.credentials(), mech=gssapi.MechType.kerberos, usage="initiate"
            )
            self._next_token = self._client_ctx.step(None)
        except self._errors as error:
            raise _failed(error) from None

    def receive(self, auth_bytes: bytes) -> None:
        try:
            super().receive(bytes(auth_bytes))
        except self._errors as error:
            raise _failed(error) from None


def _is_unreachable(error: Exception) -> bool:
    return getattr(error, "min_code", 0) % (1 << 32) in _UNREACHABLE


def _failed(error: Exception) -> kafka.errors.KafkaError:
    if _is_unreachable(error):
        return kafka.errors.KafkaConnectionError(f"Kerberos does not answer: {error}")
    return kafka.errors.SaslAuthenticationFailedError(f"Kerberos: {error}. {_ADVICE}")
