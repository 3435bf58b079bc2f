"""Logins by Java's names: OAUTHBEARER, AWS_MSK_IAM and GSSAPI, and the forms of cloud services."""

import pickle
from dataclasses import replace

import pytest

from ticdc_source.errors import OptionError
from ticdc_source.options.kafka_client import ClientSettings, client_settings
from ticdc_source.options.logins import EndpointLogin, KerberosLogin, LoginTimes, MSKLogin, TLSSettings
from ticdc_source.options.options import Options
from ticdc_source.options.parsers import Secret

SECRET = "s3cr3t-that-must-not-show"
ENDPOINT = "https://login.example.com:8443/oauth2/token?tenant=a"
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"


def config(mechanism: str, jaas: str | None = None, protocol: str = "SASL_SSL", **more: str) -> ClientSettings:
    """Return the settings of a login; `a_b` is the option `kafka.a.b`."""
    given = {"bootstrap.servers": "b:9092", "security.protocol": protocol, "sasl.mechanism": mechanism}
    given |= {name.replace("_", "."): value for name, value in more.items()}
    if jaas is not None:
        given["sasl.jaas.config"] = jaas
    return client_settings(
        Options.of({"subscribe": "t", **{f"kafka.{name}": value for name, value in given.items()}}), driver=True
    )


def oauth(jaas: str | None, **more: str) -> ClientSettings:
    return config("OAUTHBEARER", jaas, **{"sasl_oauthbearer_token_endpoint_url": ENDPOINT, **more})


@pytest.mark.parametrize("package", ["", "kafkashaded.", "org.example.shaded."])
def test_oauth_by_a_login_module(package: str) -> None:
    """A login module of Java has id, secret, scope and extensions; its package does not matter."""
    jaas = (
        f'{package}{OAUTH} clientId="me" clientSecret="{SECRET}" scope="a b" '
        'extension_logicalCluster="lkc-1" extension_identityPoolId="pool-2";'
    )
    handler = f"{package}org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerLoginCallbackHandler"

    settings = oauth(jaas, sasl_login_callback_handler_class=handler, sasl_login_read_timeout_ms="1234")

    assert settings.login == EndpointLogin(
        endpoint=ENDPOINT,
        client_id="me",
        client_secret=Secret(SECRET),
        scope="a b",
        extensions=(("logicalCluster", "lkc-1"), ("identityPoolId", "pool-2")),
        times=LoginTimes(read_timeout_ms=1234),
    )


def test_kafkas_newer_names_come_first() -> None:
    """`sasl.oauthbearer.client.credentials.…` and `….scope` are Kafka 4.1's, and come before the login module."""
    newer = {
        "sasl_oauthbearer_client_credentials_client_id": "me",
        "sasl_oauthbearer_client_credentials_client_secret": SECRET,
        "sasl_oauthbearer_scope": "all",
        "sasl_oauthbearer_jwt_retriever_class": (
            "org.apache.kafka.common.security.oauthbearer.ClientCredentialsJwtRetriever"
        ),
    }
    expected = EndpointLogin(endpoint=ENDPOINT, client_id="me", client_secret=Secret(SECRET), scope="all")

    assert oauth(None, **newer).login == expected
    assert oauth(f'{OAUTH} clientId="x" clientSecret="y" scope="z";', **newer).login == expected
    with_extension = oauth(f'{OAUTH} extension_a="1";', **newer).login
    assert with_extension == replace(expected, extensions=(("a", "1"),))


def test_the_endpoint_can_have_tls_of_its_own() -> None:
    """Entries `ssl.…` of the login module are the settings of TLS at the endpoint, as in Java."""
    entries = 'clientId="a" clientSecret="b" ssl.truststore.location="/idp.pem" ssl.truststore.type="PEM"'

    login = oauth(f"{OAUTH} {entries};").login
    plain = oauth(f'{OAUTH} clientId="a" clientSecret="b";').login

    assert isinstance(login, EndpointLogin)
    assert isinstance(plain, EndpointLogin)
    assert login.tls == TLSSettings(cafile="/idp.pem", truststore_type="PEM")
    assert plain.tls is None


GOOD = f'{OAUTH} clientId="me" clientSecret="{SECRET}";'


@pytest.mark.parametrize(
    ("jaas", "more", "message"),
    [
        (f'{OAUTH} clientId="me";', {}, "needs the option 'kafka.sasl.jaas.config'"),
        (f'{OAUTH} clientSecret="{SECRET}";', {}, "needs the option 'kafka.sasl.jaas.config'"),
        (None, {}, "needs the option 'kafka.sasl.jaas.config'"),
        (f'{GOOD[:-1]} extension_auth="{SECRET}";', {}, "is not a SASL extension"),
        (f'{GOOD[:-1]} extension_a1="{SECRET}";', {}, "is not a SASL extension"),
        (f'{GOOD[:-1]} extension_a="{SECRET}ä";', {}, "is not a SASL extension"),
        (f'{GOOD[:-1]} unsecuredLoginStringClaim_sub="{SECRET}";', {}, "has an unknown entry; known entries are"),
        (f'{GOOD[:-1]} clientID="{SECRET}";', {}, "has an unknown entry 'clientID'"),
        (f'{GOOD[:-1]} ssl.protocol="{SECRET}";', {}, "unknown TLS setting"),
        (
            GOOD,
            {"sasl_login_callback_handler_class": "org.apache.kafka.x.OAuthBearerUnsecuredLoginCallbackHandler"},
            "'kafka.sasl.login.callback.handler.class' names a Java class that is not available",
        ),
        (GOOD, {"sasl_client_callback_handler_class": "com.example.Mine"}, "leave it out"),
        (GOOD, {"sasl_oauthbearer_jwt_retriever_class": "a.JwtBearerJwtRetriever"}, "set it to DefaultJwtRetriever or"),
        (GOOD, {"sasl_oauthbearer_token_endpoint_url": f"https://me:{SECRET}@login"}, "expected a URL such as"),
        (GOOD, {"sasl_oauthbearer_token_endpoint_url": f"login/{SECRET}"}, "expected a URL such as"),
        (GOOD, {"sasl_login_class": "com.example.Mine"}, "names a Java class"),
    ],
)
def test_incomplete_logins_never_show_the_secret(jaas: str | None, more: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message) as caught:
        oauth(jaas, **more)

    assert SECRET not in f"{caught.value} {caught.value!r} {caught.value.__context__}"


def test_oauth_needs_an_endpoint() -> None:
    with pytest.raises(OptionError, match=r"needs the option 'kafka\.sasl\.oauthbearer\.token\.endpoint\.url'"):
        config("OAUTHBEARER", GOOD)


IAM = "software.amazon.msk.auth.iam.IAMLoginModule required"


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ("", MSKLogin()),
        (' awsProfileName="dev"', MSKLogin(profile="dev")),
        (
            ' awsRoleArn="arn:aws:iam::1:role/r" awsRoleSessionName="s" awsRoleExternalId="e" awsStsRegion="eu-west-1"',
            MSKLogin(role_arn="arn:aws:iam::1:role/r", role_session="s", external_id="e", sts_region="eu-west-1"),
        ),
    ],
)
def test_msk_by_a_login_module(entries: str, expected: MSKLogin) -> None:
    handler = "software.amazon.msk.auth.iam.IAMClientCallbackHandler"
    settings = config("AWS_MSK_IAM", f"{IAM}{entries};", sasl_client_callback_handler_class=handler)
    newer = config(
        "OAUTHBEARER",
        f"{OAUTH}{entries};",
        sasl_login_callback_handler_class="software.amazon.msk.auth.iam.IAMOAuthBearerLoginCallbackHandler",
    )

    assert settings.login == newer.login == expected
    assert expected.mechanism == "OAUTHBEARER"


def test_msk_needs_tls() -> None:
    """A signature is as good as a password: it is not sent without TLS."""
    with pytest.raises(OptionError, match=r"needs kafka\.security\.protocol=SASL_SSL"):
        config("AWS_MSK_IAM", f"{IAM};", protocol="SASL_PLAINTEXT")
    with pytest.raises(OptionError, match="has an unknown entry 'awsRoleARN'"):
        config("AWS_MSK_IAM", f'{IAM} awsRoleARN="x";')


KERBEROS = "com.sun.security.auth.module.Krb5LoginModule required"


@pytest.mark.parametrize(
    ("jaas", "expected"),
    [
        (
            f'{KERBEROS} useKeyTab=true storeKey=true keyTab="/etc/me.keytab" principal="me@EXAMPLE.COM";',
            KerberosLogin(principal="me@EXAMPLE.COM", keytab="/etc/me.keytab", service="kafka"),
        ),
        (
            f'{KERBEROS} useKeyTab=true keyTab="file:///etc/me.keytab" principal="me" serviceName="cdc";',
            KerberosLogin(principal="me", keytab="/etc/me.keytab", service="cdc"),
        ),
        (f"{KERBEROS} useTicketCache=true;", KerberosLogin()),
        (
            f'{KERBEROS} useTicketCache=true ticketCache="/tmp/cc" renewTGT=true principal="me";',
            KerberosLogin(principal="me", ticket_cache="/tmp/cc"),  # noqa: S108 (a name)
        ),
    ],
)
def test_kerberos_by_a_login_module(jaas: str, expected: KerberosLogin) -> None:
    """Java's login module names a keytab with a principal, or the ticket cache."""
    assert config("GSSAPI", jaas).login == expected


@pytest.mark.parametrize(
    ("jaas", "message"),
    [
        (f'{KERBEROS} useKeyTab=true keyTab="/a";', "useKeyTab=true needs keyTab and principal"),
        (f'{KERBEROS} keyTab="/a" principal="me";', "needs useKeyTab=true or useTicketCache=true"),
        (f'{KERBEROS} useTicketCache=true serviceName="other";', "name different services"),
        (f'{KERBEROS} useTicketCache=true tryFirstPass="{SECRET}";', "has an unknown entry 'tryFirstPass'"),
    ],
)
def test_kerberos_that_cannot_be(jaas: str, message: str) -> None:
    """Nobody can be asked for a password, and an unknown entry is not ignored."""
    with pytest.raises(OptionError, match=message) as caught:
        config("GSSAPI", jaas, sasl_kerberos_service_name="kafka")

    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("settings", [oauth(GOOD), config("AWS_MSK_IAM", f"{IAM};"), config("GSSAPI")])
def test_logins_pickle_and_print_without_secrets(settings: ClientSettings) -> None:
    assert pickle.loads(pickle.dumps(settings)) == settings  # noqa: S301 (made here)
    assert SECRET not in f"{settings} {settings!r}"
