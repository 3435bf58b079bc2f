"""The schema registry as the user typed it: where it is, who asks it, and how long it may take."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit, urlunsplit

from ticdc_source.options.logins import TLSSettings
from ticdc_source.options.options import Options
from ticdc_source.options.parsers import Secret


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrySettings:
    """The options of the schema registry; they can be pickled for the workers.

    Attributes:
        urls: those with Confluent's API, without user and password.
        proxy: its URL; None for that of the environment.
        region: that of AWS Glue; None if AWS's own configuration says it.
        endpoint: the URL of AWS Glue; None for that of the region.
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
        """Return what options say. A user in an URL counts unless `basic.auth.user.info` is given, as Confluent's."""
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
