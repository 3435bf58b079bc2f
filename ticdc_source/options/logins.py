"""The user's settings of TLS, the schema registry and logins; each kind of login has its mechanism and fields.

Sources: KIP-651 for PEM stores; Kafka's `OAuthBearerLoginCallbackHandler`, `ClientCredentialsJwtRetriever` and
`HttpJwtRetriever` (KIP-768, KIP-1139), AWS's `IAMLoginModule` (aws-msk-iam-auth), Java's `Krb5LoginModule`; RFC 7628
for the extensions of OAUTHBEARER; Kafka's `JaasConfig`, with the syntax of Java's StreamTokenizer. No error repeats a
text that may be secret.
"""

# ruff: noqa: RUF009 (`option` returns a dataclass field; its default is made once, and never changed)

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal, TypeAlias
from urllib.parse import unquote, urlsplit, urlunsplit

from ticdc_source.errors import OptionError
from ticdc_source.options import parsers
from ticdc_source.options.option import CLIENT, DOTTED, made, rows_of
from ticdc_source.options.options import Options
from ticdc_source.options.parsers import Secret

StoreType: TypeAlias = Literal["JKS", "PKCS12", "PEM"]
_JAAS = "kafka.sasl.jaas.config"
_FORM = '<login module> required <name>="…" <name>="…";, such as <login module> required username="…" password="…";'
# The tokens of Java's StreamTokenizer as Kafka's JaasConfig configures it, except that words may have characters that
# it allows only in quotes, such as a password's.
_TOKEN = re.compile(
    r"""(?:\s|//[^\r\n]*|/\*.*?\*/)*(?:"(?P<double>(?:[^"\\\r\n]|\\.)*)"|'(?P<single>(?:[^'\\\r\n]|\\.)*)'"""
    r"""|(?P<word>(?:[^\s"'=;/]|/(?![/*]))+)(?=[\s=;/]|$)|(?P<sign>[=;])|(?P<end>$))""",
    re.DOTALL,
)
_FLAGS = frozenset({"required", "requisite", "sufficient", "optional"})
_ESCAPE = re.compile(r"\\([0-3][0-7]{0,2}|[4-7][0-7]?|.)", re.DOTALL)
_ESCAPED = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginTimes:
    """Time limits of a token request, and pauses between two, in milliseconds.

    With `sasl_login_` before it, a name here is a setting's name. By default, Kafka does not limit requests.
    """

    connect_timeout_ms: int = CLIENT.option(DOTTED, parsers.int32(1), default="10000")
    read_timeout_ms: int = CLIENT.option(DOTTED, parsers.int32(1), default="10000")
    retry_backoff_ms: int = CLIENT.option(DOTTED, parsers.whole_number(0), default="100")
    retry_backoff_max_ms: int = CLIENT.option(DOTTED, parsers.whole_number(0), default="10000")


_STORE_TYPE: Callable[[str], StoreType] = parsers.one_of("JKS", "PKCS12", "PEM")


@dataclass(frozen=True, slots=True, kw_only=True)
class TLSSettings:
    """The settings of TLS; with `ssl_` before it, a name here is kafka-python's.

    Raises:
        OptionError: a key or its certificate is missing, or given twice.
    """

    truststore_type: StoreType | None = CLIENT.optional("kafka.ssl.truststore.type", _STORE_TYPE)
    cafile: str | None = CLIENT.optional("kafka.ssl.truststore.location", parsers.stripped)
    truststore_password: Secret | None = CLIENT.optional("kafka.ssl.truststore.password", Secret, secret=True)
    truststore_pem: str | None = CLIENT.optional("kafka.ssl.truststore.certificates", parsers.stripped)
    keystore_type: StoreType | None = CLIENT.optional("kafka.ssl.keystore.type", _STORE_TYPE)
    certfile: str | None = CLIENT.optional("kafka.ssl.keystore.location", parsers.stripped)
    keystore_password: Secret | None = CLIENT.optional("kafka.ssl.keystore.password", Secret, secret=True)
    keystore_key_pem: Secret | None = CLIENT.optional("kafka.ssl.keystore.key", Secret, secret=True)
    keystore_chain_pem: str | None = CLIENT.optional("kafka.ssl.keystore.certificate.chain", parsers.stripped)
    password: Secret | None = CLIENT.optional("kafka.ssl.key.password", Secret, secret=True)
    check_hostname: bool = CLIENT.option(
        "kafka.ssl.endpoint.identification.algorithm", parsers.host_check, default="https"
    )
    keyfile: str | None = CLIENT.optional("kafka.ssl_keyfile", parsers.stripped)
    crlfile: str | None = CLIENT.optional("kafka.ssl_crlfile", parsers.stripped)
    ciphers: str | None = CLIENT.optional("kafka.ssl_ciphers", parsers.stripped)

    def __post_init__(self) -> None:
        for store, file, texts in (
            ("truststore", self.cafile, (self.truststore_pem,)),
            ("keystore", self.certfile, (self.keystore_key_pem, self.keystore_chain_pem)),
        ):
            if file is not None and texts.count(None) < len(texts):
                raise OptionError(
                    f"kafka.ssl.{store}.location and certificates given as text exclude each other: set one"
                )
        if (self.keystore_key_pem is None) != (self.keystore_chain_pem is None):
            raise OptionError(
                "Options 'kafka.ssl.keystore.key' and 'kafka.ssl.keystore.certificate.chain' must be given together"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrySettings:
    """The options of the schema registry; they can be pickled for the workers.

    Attributes:
        urls: registries with Confluent's API, without user and password.
        proxy: its URL; None for the environment's.
        region: of AWS Glue; None for the one in AWS's own configuration.
        endpoint: the URL of AWS Glue; None for the region's.
    """

    urls: tuple[str, ...] = ()
    user_info: Secret | None = None
    token: Secret | None = None
    tls: TLSSettings = field(default_factory=TLSSettings)
    proxy: str | None = None
    connect_s: float = 10.0
    read_s: float = 10.0
    retries: int = 3
    retry_interval_s: float = 1.0
    region: str | None = None
    endpoint: str | None = None

    @staticmethod
    def of(options: Options) -> RegistrySettings:
        """Read the options. As in Confluent's clients, `basic.auth.user.info` overrides a user in a URL."""
        plain, users = [], []
        for url in options.schema_registry_url or ():
            parsed = urlsplit(url)
            user, at, host = parsed.netloc.rpartition("@")
            plain.append(urlunsplit(parsed._replace(netloc=host)))
            users += [Secret(unquote(user))] if at else []
        return RegistrySettings(
            urls=tuple(plain),
            user_info=options.basic_auth_user_info or next(iter(users), None),
            token=options.bearer_auth_token,
            tls=TLSSettings(
                cafile=options.schema_registry_ssl_truststore_location,
                truststore_password=options.schema_registry_ssl_truststore_password,
                certfile=options.schema_registry_ssl_keystore_location,
                keystore_password=options.schema_registry_ssl_keystore_password,
                password=options.schema_registry_ssl_key_password,
            ),
            proxy=None if options.proxy_host is None else f"http://{options.proxy_host}:{options.proxy_port}",
            connect_s=options.http_connect_timeout_ms / 1000,
            read_s=options.http_read_timeout_ms / 1000,
            retries=options.fetch_offset_num_retries,
            retry_interval_s=options.fetch_offset_retry_interval_ms / 1000,
            region=options.glue_region,
            endpoint=options.glue_endpoint,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SASLSettings:
    """The user's settings of a login, for `login_of`."""

    mechanism: str | None = CLIENT.optional(DOTTED, parsers.upper_case)
    jaas_config: Secret | None = CLIENT.optional(DOTTED, Secret, secret=True)
    plain_username: str | None = CLIENT.optional("kafka.sasl_plain_username", parsers.stripped)
    plain_password: Secret | None = CLIENT.optional("kafka.sasl_plain_password", Secret, secret=True)
    login_callback_handler_class: str | None = CLIENT.optional(DOTTED, parsers.stripped)
    client_callback_handler_class: str | None = CLIENT.optional(DOTTED, parsers.stripped)
    oauthbearer_token_endpoint_url: str | None = CLIENT.optional(DOTTED, parsers.token_endpoint)
    oauthbearer_client_credentials_client_id: str | None = CLIENT.optional(DOTTED, parsers.stripped)
    oauthbearer_client_credentials_client_secret: Secret | None = CLIENT.optional(DOTTED, Secret, secret=True)
    oauthbearer_scope: str | None = CLIENT.optional(DOTTED, parsers.stripped)
    oauthbearer_header_urlencode: bool = CLIENT.option(DOTTED, parsers.boolean, default="false")
    oauthbearer_jwt_retriever_class: str | None = CLIENT.optional(DOTTED, parsers.stripped)
    kerberos_service_name: str | None = CLIENT.optional(DOTTED, parsers.stripped)
    kerberos_domain_name: str | None = CLIENT.optional("kafka.sasl_kerberos_domain_name", parsers.stripped)


@dataclass(frozen=True, slots=True, kw_only=True)
class PasswordLogin:
    """A login with user name and password."""

    mechanism: str
    username: str
    password: Secret


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointLogin:
    """A login with a token that an endpoint issues for client credentials.

    Attributes:
        endpoint: its URL, or `file:` and a path.
        client_id: "" for a file.
        scope: the token's scope, if the endpoint needs one.
        extensions: SASL extensions, by name.
        encodes_header: whether id and secret are URL-encoded in the header.
        tls: the endpoint's TLS settings, from the entries `ssl.…` of the login module; None for those of Kafka.
    """

    mechanism: ClassVar[str] = "OAUTHBEARER"

    endpoint: str
    client_id: str = ""
    client_secret: Secret = field(default_factory=lambda: Secret(""))
    scope: str | None = None
    extensions: tuple[tuple[str, str], ...] = ()
    encodes_header: bool = False
    tls: TLSSettings | None = None
    times: LoginTimes = field(default_factory=LoginTimes)


@dataclass(frozen=True, slots=True, kw_only=True)
class MSKLogin:
    """An IAM login at Amazon MSK; None leaves a choice to AWS's configuration."""

    mechanism: ClassVar[str] = "OAUTHBEARER"  # brokers take both names of it (docs/design/0015)

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
        principal: None for the one of the keytab or the ticket cache.
        ticket_cache: None for Kerberos' own default.
        domain: the host in the brokers' service principal; None for the connected host.
    """

    mechanism: ClassVar[str] = "GSSAPI"

    principal: str | None = None
    keytab: str | None = None
    ticket_cache: str | None = None
    service: str = "kafka"
    domain: str | None = None


Login: TypeAlias = PasswordLogin | EndpointLogin | MSKLogin | KerberosLogin

_WITH_PASSWORD = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_MECHANISMS = (*_WITH_PASSWORD, "OAUTHBEARER", "AWS_MSK_IAM", "GSSAPI")
# The mechanisms of Java's login modules, by class without the package, which platforms rename.
_MODULES: Mapping[str, tuple[str, ...]] = {
    "PlainLoginModule": ("PLAIN",),
    "ScramLoginModule": ("SCRAM-SHA-256", "SCRAM-SHA-512"),
    "OAuthBearerLoginModule": ("OAUTHBEARER",),
    "IAMLoginModule": ("AWS_MSK_IAM",),
    "Krb5LoginModule": ("GSSAPI",),
}
# Java's classes that request and sign tokens, by setting: what they do with one mechanism is done here too.
_MSK_HANDLER = "IAMOAuthBearerLoginCallbackHandler"
_CLASSES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "login.callback.handler.class": ("OAUTHBEARER", ("OAuthBearerLoginCallbackHandler", _MSK_HANDLER)),
    "client.callback.handler.class": ("AWS_MSK_IAM", ("IAMClientCallbackHandler",)),
    "oauthbearer.jwt.retriever.class": (
        "OAUTHBEARER",
        ("DefaultJwtRetriever", "ClientCredentialsJwtRetriever", "FileJwtRetriever"),
    ),
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
_KERBEROS_ENTRIES = ("useKeyTab", "keyTab", "principal", "useTicketCache", "ticketCache", "serviceName")
_KERBEROS_WITHOUT_EFFECT = ("debug", "doNotPrompt", "isInitiator", "refreshKrb5Config", "renewTGT", "storeKey")
# By Java's name: the entries `ssl.…` of a login module.
_TLS_ENTRIES = {row.name.removeprefix("kafka."): row for row in rows_of(TLSSettings)}


def login_of(given: SASLSettings, times: LoginTimes, protocol: str) -> Login:
    """Return the login that the settings describe.

    Raises:
        OptionError: the settings are not a complete login.
    """
    mechanism = given.mechanism
    if mechanism not in _MECHANISMS:
        raise OptionError(
            f"Option 'kafka.sasl.mechanism' must be one of {', '.join(_MECHANISMS)} with "
            f"kafka.security.protocol={protocol}"
        )
    for option, (its_mechanism, classes) in _CLASSES.items():
        name = getattr(given, option.replace(".", "_"))
        if name is not None and (mechanism != its_mechanism or _last(name) not in classes):
            choice = f"set it to {' or '.join(classes)}" if mechanism == its_mechanism else "leave it out"
            raise OptionError(
                f"Option 'kafka.sasl.{option}' names a Java class that is not available to Python with {mechanism}: "
                f"{choice}"
            )
    entries = {} if given.jaas_config is None else _entries(given.jaas_config.reveal(), mechanism)
    if mechanism in _WITH_PASSWORD:
        return _password(entries, given, mechanism)
    if mechanism == "GSSAPI":
        return _kerberos(entries, given)
    if mechanism == "AWS_MSK_IAM" or _last(given.login_callback_handler_class or "") == _MSK_HANDLER:
        return _msk(entries, protocol, times)
    return _oauth(entries, given, times)


def _last(name: str) -> str:
    return name.strip().rpartition(".")[2]


def _password(entries: Mapping[str, str], given: SASLSettings, mechanism: str) -> PasswordLogin:
    username, password = given.plain_username, given.plain_password
    if given.jaas_config is not None:
        if "username" not in entries or "password" not in entries:
            raise OptionError(f"Option '{_JAAS}' lacks a username or a password; expected {_USER_FORM}")
        username, password = entries["username"], Secret(entries["password"])
    if username is None or password is None:
        raise OptionError(f"kafka.sasl.mechanism={mechanism} needs the option '{_JAAS}': {_USER_FORM}")
    return PasswordLogin(mechanism=mechanism, username=username, password=password)


def _oauth(entries: Mapping[str, str], given: SASLSettings, times: LoginTimes) -> EndpointLogin:
    endpoint = given.oauthbearer_token_endpoint_url
    if endpoint is None:
        raise OptionError(
            "kafka.sasl.mechanism=OAUTHBEARER needs the option 'kafka.sasl.oauthbearer.token.endpoint.url', the URL to "
            "request tokens from"
        )
    secret = given.oauthbearer_client_credentials_client_secret or Secret(entries.get("clientSecret", ""))
    client_id = given.oauthbearer_client_credentials_client_id or entries.get("clientId", "")
    if not endpoint.startswith("file:") and not (client_id.strip() and secret.reveal().strip()):
        raise OptionError(
            f"kafka.sasl.mechanism=OAUTHBEARER needs the option '{_JAAS}' ({_OAUTH_FORM}), or "
            "'kafka.sasl.oauthbearer.client.credentials.client.id' and '….client.secret'"
        )
    extensions = {name[len(_EXTENSION) :]: text for name, text in entries.items() if name.startswith(_EXTENSION)}
    tls = {name: text for name, text in entries.items() if name.startswith("ssl.")}
    _refuse_unknown(
        (name for name in entries if name not in tls and not name.startswith(_EXTENSION)),
        (*_OAUTH_ENTRIES, f"{_EXTENSION}…", "ssl.…"),
    )
    if not tls.keys() <= _TLS_ENTRIES.keys():
        raise OptionError(f"Option '{_JAAS}' has an unknown TLS setting; a known one is ssl.truststore.location")
    for name, value in extensions.items():
        # RFC 7628, and Java's client: letters, and nothing that ends a pair.
        if not _EXTENSION_NAME.fullmatch(name) or name == "auth" or not _EXTENSION_VALUE.fullmatch(value):
            raise OptionError(
                f"Option '{_JAAS}': an entry {_EXTENSION}… is not a SASL extension: its name must consist of the "
                "letters A to Z and a to z, and not be auth; its value must be printable ASCII characters"
            )
    rows = ((_TLS_ENTRIES[name], text, f"{_JAAS}', entry '{name}") for name, text in tls.items())
    return EndpointLogin(
        endpoint=endpoint,
        client_id=client_id.strip(),
        client_secret=Secret(secret.reveal().strip()),
        scope=(entries.get("scope") if given.oauthbearer_scope is None else given.oauthbearer_scope) or None,
        extensions=tuple(extensions.items()),
        encodes_header=given.oauthbearer_header_urlencode,
        tls=made(TLSSettings, {row.field: row.value_of(text, name) for row, text, name in rows}) if tls else None,
        times=times,
    )


def _msk(entries: Mapping[str, str], protocol: str, times: LoginTimes) -> MSKLogin:
    if protocol != "SASL_SSL":
        raise OptionError(
            "An AWS IAM login needs kafka.security.protocol=SASL_SSL: without TLS, anyone could use its signature"
        )
    _refuse_unknown(entries, _MSK_ENTRIES, _MSK_WITHOUT_EFFECT)
    given = {field: entries[name] for name, field in _MSK_ENTRIES.items() if entries.get(name)}
    return MSKLogin(**given, times=times)


def _kerberos(entries: Mapping[str, str], given: SASLSettings) -> KerberosLogin:
    _refuse_unknown(entries, _KERBEROS_ENTRIES, _KERBEROS_WITHOUT_EFFECT)
    services = {name for name in (entries.get("serviceName"), given.kerberos_service_name) if name is not None}
    if len(services) > 1:
        raise OptionError(
            f"Options 'kafka.sasl.kerberos.service.name' and '{_JAAS}' (serviceName) name different services: set one"
        )
    login = KerberosLogin(service=next(iter(services), KerberosLogin().service), domain=given.kerberos_domain_name)
    if given.jaas_config is None:
        return login
    uses_keytab, uses_cache = (
        entries.get(name, "").strip().lower() == "true" for name in ("useKeyTab", "useTicketCache")
    )
    keytab, principal = entries.get("keyTab"), entries.get("principal") or None
    # Java's module tries the ticket cache first, and the keytab if there is no ticket. The keytab is enough.
    if uses_keytab:
        if not keytab or principal is None:
            raise OptionError(f"Option '{_JAAS}': useKeyTab=true needs keyTab and principal")
        return replace(login, principal=principal, keytab=_path(keytab))
    if not uses_cache:
        raise OptionError(
            f"Option '{_JAAS}': Krb5LoginModule needs useKeyTab=true or useTicketCache=true; there is no prompt"
        )
    return replace(login, principal=principal, ticket_cache=_path(entries.get("ticketCache", "")) or None)


def _path(text: str) -> str:
    return re.sub(r"^(?:file|FILE):(?://(?=/))?", "", text)


def _refuse_unknown(entries: Iterable[str], names: Collection[str], without_effect: Collection[str] = ()) -> None:
    for name in entries:
        if name not in names and name not in without_effect:
            # An unquoted secret could be taken for the name.
            is_name = re.fullmatch(r"[a-z]{2,8}[A-Z][A-Za-z]{1,20}|(?:ssl|sasl)\.[a-z.]+", name)
            shown = f" '{name}'" if is_name else ""
            raise OptionError(f"Option '{_JAAS}' has an unknown entry{shown}; known entries are {', '.join(names)}")


def _entries(jaas: str, mechanism: str) -> dict[str, str]:
    tokens = _tokens(jaas)
    if tokens is not None and [sign for sign, _ in tokens[:2]] == [False, False] and tokens[-1] == (True, ";"):
        (_, name), (_, flag), *entries = tokens[:-1]
        keys, equals, values = entries[::3], entries[1::3], entries[2::3]
        are_words = not any(sign for sign, _ in (*keys, *values))
        if flag.lower() in _FLAGS and are_words and len(keys) == len(values) and equals == [(True, "=")] * len(keys):
            _check_module(_last(name), mechanism)
            return {key: value for (_, key), (_, value) in zip(keys, values, strict=True)}
    raise OptionError(f"Option '{_JAAS}' is not of the form: {_FORM}")


def _check_module(name: str, mechanism: str) -> None:
    if name not in _MODULES:
        raise OptionError(
            f"Option '{_JAAS}' has a login module that only Java's client has; supported are {', '.join(_MODULES)}"
        )
    if mechanism not in _MODULES[name]:
        raise OptionError(f"Option '{_JAAS}' has a {name}, which does not fit kafka.sasl.mechanism={mechanism}")


def _tokens(text: str) -> list[tuple[bool, str]] | None:
    """Return words, without quotes, and signs, as (is a sign, text); None if the text has anything else."""
    tokens: list[tuple[bool, str]] = []
    at = 0
    while match := _TOKEN.match(text, at):
        at, kind = match.end(), str(match.lastgroup)
        if kind == "end":
            return tokens
        word = match[kind]
        tokens.append((kind == "sign", word if kind in {"word", "sign"} else _ESCAPE.sub(_unescaped, word)))
    return None


def _unescaped(escape: re.Match[str]) -> str:
    digits = escape[1]
    return chr(int(digits, 8)) if digits.isdecimal() and digits < "8" else _ESCAPED.get(digits, digits)
