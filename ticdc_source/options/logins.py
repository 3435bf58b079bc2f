"""SASL logins: Kafka's settings → what a client needs to log in, without I/O.

Sources: Kafka's `OAuthBearerLoginCallbackHandler`, `ClientCredentialsJwtRetriever` and `HttpJwtRetriever` (KIP-768,
KIP-1139), AWS's `IAMLoginModule` (aws-msk-iam-auth), Java's `Krb5LoginModule`; RFC 7628 for the extensions of
OAUTHBEARER. No error message here holds the value of an option that may be secret.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from ticdc_source.errors import OptionError
from ticdc_source.options.credentials import ClientSettings, Secret, tls
from ticdc_source.options.jaas import OPTION, LoginModule, parse_jaas

__all__ = ["EndpointLogin", "KerberosLogin", "Login", "LoginTimes", "MSKLogin", "sasl"]


class LoginTimes(NamedTuple):
    """How long a request for a token may take, and how long to wait between two, in milliseconds.

    Kafka has no limit for requests unless one is set.
    """

    connect_ms: int = 10_000
    read_ms: int = 10_000
    backoff_ms: int = 100
    backoff_max_ms: int = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointLogin:
    """A login by a token that a token endpoint gives for a client's credentials.

    Attributes:
        endpoint: its URL, or `file:` and a path.
        client_id: the client's name at the endpoint; "" for a file.
        client_secret: the client's secret.
        scope: what the token is for, if the endpoint wants to know it.
        extensions: SASL extensions, by name.
        encodes_header: whether id and secret are URL-encoded before they become a header.
        tls: the settings of TLS at the endpoint, from the entries `ssl.…` of the login module; None for those of Kafka.
        times: how long to wait.
    """

    endpoint: str
    client_id: str = ""
    client_secret: Secret = field(default_factory=lambda: Secret(""))
    scope: str | None = None
    extensions: tuple[tuple[str, str], ...] = ()
    encodes_header: bool = False
    tls: ClientSettings | None = None
    times: LoginTimes = field(default_factory=LoginTimes)


@dataclass(frozen=True, slots=True, kw_only=True)
class MSKLogin:
    """A login at Amazon MSK with IAM.

    Attributes:
        profile: the profile of AWS's configuration; None for the default credentials.
        role_arn: the role to assume; None for none.
        role_session: the name of the role's session.
        external_id: what the role's owner asks for; None for nothing.
        sts_region: where the role is assumed; None for where AWS's configuration says.
        times: how long to wait.
    """

    profile: str | None = None
    role_arn: str | None = None
    role_session: str = "ticdc-source"
    external_id: str | None = None
    sts_region: str | None = None
    times: LoginTimes = field(default_factory=LoginTimes)


@dataclass(frozen=True, slots=True, kw_only=True)
class KerberosLogin:
    """A login with Kerberos.

    Attributes:
        principal: who logs in; None for the one of the keytab or the ticket cache.
        keytab: the file with the principal's keys; None for the ticket cache.
        ticket_cache: the ticket cache; None for Kerberos' own default.
    """

    principal: str | None = None
    keytab: str | None = None
    ticket_cache: str | None = None


Login: TypeAlias = EndpointLogin | MSKLogin | KerberosLogin

# Parses the text of a setting by Java's name: kafka-python's name for it, and the value.
ParseSetting: TypeAlias = Callable[[str, str], tuple[str, object]]

_WITH_PASSWORD = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_MECHANISMS = (*_WITH_PASSWORD, "OAUTHBEARER", "AWS_MSK_IAM", "GSSAPI")
# Which mechanisms a login module is for, and what it looks like.
_MODULES: Mapping[str, tuple[str, ...]] = {
    "PlainLoginModule": ("PLAIN",),
    "ScramLoginModule": ("SCRAM-SHA-256", "SCRAM-SHA-512"),
    "OAuthBearerLoginModule": ("OAUTHBEARER",),
    "IAMLoginModule": ("AWS_MSK_IAM",),
    "Krb5LoginModule": ("GSSAPI",),
}
# Java's classes that ask for tokens and sign them: what they do is done here too.
_OAUTH_HANDLER, _MSK_OAUTH_HANDLER, _MSK_HANDLER = (
    "OAuthBearerLoginCallbackHandler",
    "IAMOAuthBearerLoginCallbackHandler",
    "IAMClientCallbackHandler",
)
_RETRIEVERS = ("DefaultJwtRetriever", "ClientCredentialsJwtRetriever", "FileJwtRetriever")
_HANDLERS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "sasl_login_callback_handler_class": {"OAUTHBEARER": (_OAUTH_HANDLER, _MSK_OAUTH_HANDLER)},
    "sasl_client_callback_handler_class": {"AWS_MSK_IAM": (_MSK_HANDLER,)},
    "sasl_oauthbearer_jwt_retriever_class": {"OAUTHBEARER": _RETRIEVERS},
}
_USER_FORM = '<login module> required username="…" password="…";'
_OAUTH_FORM = 'OAuthBearerLoginModule required clientId="…" clientSecret="…" scope="…";'

_EXTENSION = "extension_"
_EXTENSION_NAME = re.compile(r"[A-Za-z]+")
_EXTENSION_VALUE = re.compile(r"[\x21-\x7e \t\r\n]+")
_OAUTH_ENTRIES = ("clientId", "clientSecret", "scope")
_MSK_ENTRIES: Mapping[str, str] = {
    "awsProfileName": "profile",
    "awsRoleArn": "role_arn",
    "awsRoleSessionName": "role_session",
    "awsRoleExternalId": "external_id",
    "awsStsRegion": "sts_region",
}
_MSK_WITHOUT_EFFECT = ("awsDebugCreds", "awsMaxRetries", "awsMaxBackOffTimeMs")
_KERBEROS_WITHOUT_EFFECT = ("debug", "doNotPrompt", "isInitiator", "refreshKrb5Config", "renewTGT", "storeKey")


def sasl(given: ClientSettings, parse_setting: ParseSetting) -> ClientSettings:
    """Return the settings of a login: kafka-python's, or `sasl_login`; none if the security protocol has no SASL.

    Args:
        given: The parsed settings by kafka-python's names, with those of Java that have to do with logins.
        parse_setting: Parses a setting in the login module.

    Raises:
        OptionError: The settings are not a complete login.
    """
    settings = {name: value for name, value in given.items() if name.startswith("sasl_")}
    jaas = settings.pop("sasl_jaas_config", None)
    protocol = given.get("security_protocol", "PLAINTEXT")
    if not protocol.startswith("SASL_"):
        return {}  # Java's client ignores these settings too
    mechanism = settings.get("sasl_mechanism")
    if mechanism not in _MECHANISMS:
        msg = (
            f"Option 'kafka.sasl.mechanism' must be one of {', '.join(_MECHANISMS)} with "
            f"kafka.security.protocol={protocol}"
        )
        raise OptionError(msg)
    handlers = {_last(settings.pop(name, "")) for name in _HANDLERS if _is_known_class(name, settings, mechanism)}
    module = None if jaas is None else parse_jaas(jaas.reveal())
    _check_module(module, mechanism)
    times = LoginTimes(*(
        settings.pop(f"sasl_login_{name}", default)
        for name, default in zip(
            ("connect_timeout_ms", "read_timeout_ms", "retry_backoff_ms", "retry_backoff_max_ms"),
            LoginTimes(),
            strict=True,
        )
    ))  # fmt: skip
    oauth = {name: settings.pop(name) for name in [*settings] if name.startswith("sasl_oauthbearer_")}
    if mechanism in _WITH_PASSWORD:
        return settings | _password(module, settings, mechanism)
    if mechanism == "GSSAPI":
        return settings | _kerberos(module, settings)
    if mechanism == "AWS_MSK_IAM" or _MSK_OAUTH_HANDLER in handlers:
        # Tokens that AWS's signer makes are for OAUTHBEARER: the brokers take both (docs/design/0015).
        return settings | {"sasl_mechanism": "OAUTHBEARER", "sasl_login": _msk(module, protocol, times)}
    return settings | {"sasl_login": _oauth(module, oauth, times, parse_setting)}


def _last(name: str) -> str:
    return name.strip().rpartition(".")[2]


def _is_known_class(setting: str, settings: ClientSettings, mechanism: str) -> bool:
    """Return whether a class of Java is given; what it does must be done here too.

    Raises:
        OptionError: it is not.
    """
    if setting not in settings:
        return False
    known = _HANDLERS[setting].get(mechanism, ())
    if _last(settings[setting]) not in known:
        option = "kafka." + setting.replace("_", ".")
        choice = f"there is only {' or '.join(known)} here" if known else "leave it out"
        msg = f"Option '{option}' names a class of Java that is not available to Python with {mechanism}: {choice}"
        raise OptionError(msg)
    return True


def _check_module(module: LoginModule | None, mechanism: str) -> None:
    if module is None:
        return
    if module.name not in _MODULES:
        msg = f"Option '{OPTION}' has a login module that only Java's client has; there are {', '.join(_MODULES)} here"
        raise OptionError(msg)
    if mechanism not in _MODULES[module.name]:
        msg = f"Option '{OPTION}' has a {module.name}, which does not fit kafka.sasl.mechanism={mechanism}"
        raise OptionError(msg)


def _password(module: LoginModule | None, settings: ClientSettings, mechanism: str) -> ClientSettings:
    found: ClientSettings = {}
    if module is not None:
        if "username" not in module.entries or "password" not in module.entries:
            msg = f"Option '{OPTION}' lacks a username or a password; expected {_USER_FORM}"
            raise OptionError(msg)
        found["sasl_plain_username"] = module.entries["username"]
        found["sasl_plain_password"] = Secret(module.entries["password"])
    if not {"sasl_plain_username", "sasl_plain_password"} <= {*settings, *found}:
        msg = f"kafka.sasl.mechanism={mechanism} needs the option '{OPTION}': {_USER_FORM}"
        raise OptionError(msg)
    return found


def _oauth(
    module: LoginModule | None, settings: ClientSettings, times: LoginTimes, parse_setting: ParseSetting
) -> EndpointLogin:
    entries = {} if module is None else module.entries
    endpoint = settings.get("sasl_oauthbearer_token_endpoint_url")
    if endpoint is None:
        msg = (
            "kafka.sasl.mechanism=OAUTHBEARER needs the option 'kafka.sasl.oauthbearer.token.endpoint.url': where to "
            "ask for tokens"
        )
        raise OptionError(msg)
    secret = settings.get("sasl_oauthbearer_client_credentials_client_secret")
    if secret is None:
        secret = Secret(entries.get("clientSecret", ""))
    client_id = settings.get("sasl_oauthbearer_client_credentials_client_id", entries.get("clientId", ""))
    if not endpoint.startswith("file:") and not (client_id.strip() and secret.reveal().strip()):
        msg = (
            f"kafka.sasl.mechanism=OAUTHBEARER needs the option '{OPTION}' ({_OAUTH_FORM}), or "
            "'kafka.sasl.oauthbearer.client.credentials.client.id' and '….client.secret'"
        )
        raise OptionError(msg)
    extensions, tls_given = {}, {}
    for name, value in entries.items():
        if name.startswith(_EXTENSION):
            extensions[name.removeprefix(_EXTENSION)] = value
        elif name.startswith("ssl."):
            setting, parsed = parse_setting(name, value)
            tls_given[setting] = parsed
        elif name not in _OAUTH_ENTRIES:
            raise _unknown_entry(name, (*_OAUTH_ENTRIES, f"{_EXTENSION}…", "ssl.…"))
    for name, value in extensions.items():
        # RFC 7628, and Java's client: letters, and nothing that ends a pair.
        if not _EXTENSION_NAME.fullmatch(name) or name == "auth" or not _EXTENSION_VALUE.fullmatch(value):
            msg = (
                f"Option '{OPTION}': an entry {_EXTENSION}… is no SASL extension: its name must be of the letters A to "
                "Z and a to z, and not auth; its value of printable ASCII characters"
            )
            raise OptionError(msg)
    return EndpointLogin(
        endpoint=endpoint,
        client_id=client_id.strip(),
        client_secret=Secret(secret.reveal().strip()),
        scope=settings.get("sasl_oauthbearer_scope", entries.get("scope")) or None,
        extensions=tuple(extensions.items()),
        encodes_header=settings.get("sasl_oauthbearer_header_urlencode", False),
        tls=tls({**tls_given, "security_protocol": "SSL"}) if tls_given else None,
        times=times,
    )


def _msk(module: LoginModule | None, protocol: str, times: LoginTimes) -> MSKLogin:
    if protocol != "SASL_SSL":
        msg = (
            "A login with AWS's IAM needs kafka.security.protocol=SASL_SSL: without TLS, anyone could use its signature"
        )
        raise OptionError(msg)
    entries = {} if module is None else module.entries
    known = {**_MSK_ENTRIES, **dict.fromkeys(_MSK_WITHOUT_EFFECT)}
    for name in entries:
        if name not in known:
            raise _unknown_entry(name, _MSK_ENTRIES)
    given = {_MSK_ENTRIES[name]: value for name, value in entries.items() if name in _MSK_ENTRIES and value}
    return MSKLogin(**given, times=times)


def _kerberos(module: LoginModule | None, settings: ClientSettings) -> ClientSettings:
    entries = {} if module is None else dict(module.entries)
    service = entries.pop("serviceName", None)
    if service is not None and settings.get("sasl_kerberos_service_name", service) != service:
        msg = f"Options 'kafka.sasl.kerberos.service.name' and '{OPTION}' (serviceName) name different services"
        raise OptionError(msg)
    found: ClientSettings = {} if service is None else {"sasl_kerberos_service_name": service}
    if module is None:
        return found
    uses_keytab, uses_cache = (
        entries.pop(name, "false").strip().lower() == "true" for name in ("useKeyTab", "useTicketCache")
    )
    keytab, cache, principal = (entries.pop(name, None) or None for name in ("keyTab", "ticketCache", "principal"))
    for name in entries:
        if name not in _KERBEROS_WITHOUT_EFFECT:
            raise _unknown_entry(
                name, ("useKeyTab", "keyTab", "principal", "useTicketCache", "ticketCache", "serviceName")
            )
    if uses_keytab and (keytab is None or principal is None):
        msg = f"Option '{OPTION}': useKeyTab=true needs keyTab and principal"
        raise OptionError(msg)
    if not uses_keytab and not uses_cache:
        msg = (
            f"Option '{OPTION}': Krb5LoginModule needs useKeyTab=true or useTicketCache=true; nobody can be asked here"
        )
        raise OptionError(msg)
    # Java's module looks into the ticket cache first, and takes the keytab if there is no ticket. The keytab is enough.
    login = KerberosLogin(
        principal=principal,
        keytab=_path(keytab) if uses_keytab else None,
        ticket_cache=None if uses_keytab else _path(cache),
    )
    return found | {"sasl_login": login}


def _path(text: str | None) -> str | None:
    """Return the path of a file, which Java's module also takes as a URL."""
    return None if text is None else re.sub(r"^(?:file|FILE):(?://(?=/))?", "", text)


def _unknown_entry(name: str, known: Mapping[str, str] | tuple[str, ...]) -> OptionError:
    # The name is a word of the text: an unquoted secret could be one.
    shown = f" '{name}'" if re.fullmatch(r"[a-z]{2,8}[A-Z][A-Za-z]{1,20}|(?:ssl|sasl)\.[a-z.]+", name) else ""
    return OptionError(f"Option '{OPTION}' has an entry{shown} that is not known here; there are {', '.join(known)}")
