"""Tokens for Amazon MSK: whose credentials sign them, and for which region. AWS's package signs."""

import base64
import logging
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import pytest
from kafka.net.sasl.oauth import SaslMechanismOAuth

from ticdc_source.errors import OptionError
from ticdc_source.options.kafka_client import ClientSettings, client_settings
from ticdc_source.options.options import Options
from ticdc_source.sources.kafka.kafka_python.logins import login_settings
from ticdc_source.sources.kafka.patience import Limit, Patience
from ticdc_source.sources.kafka.tokens import token_of

KEY, SECRET = "AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"  # of AWS's documentation
BROKER = "b-1.shop.abc123.c2.kafka.eu-west-1.amazonaws.com:9098"
SERVERLESS = "boot-abc.c1.kafka-serverless.us-east-2.amazonaws.com:9098"


@pytest.fixture(autouse=True)
def aws(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """AWS's configuration is this folder's, nothing is asked for elsewhere, and no token is left of another test."""
    token_of.cache_clear()
    for name in ("AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    (tmp_path / "credentials").write_text(f"[dev]\naws_access_key_id=AKIADEV\naws_secret_access_key={SECRET}-dev\n")
    (tmp_path / "config").write_text("[profile dev]\nregion=ap-south-1\n")
    return tmp_path


def config(entries: str = "", servers: str = BROKER) -> ClientSettings:
    given = {
        "bootstrap.servers": servers,
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "AWS_MSK_IAM",
        "sasl.jaas.config": f"software.amazon.msk.auth.iam.IAMLoginModule required {entries};",
        "sasl.client.callback.handler.class": "software.amazon.msk.auth.iam.IAMClientCallbackHandler",
    }
    return client_settings(
        Options.of({"subscribe": "t", **{f"kafka.{name}": value for name, value in given.items()}}), driver=True
    )


def sent(settings: ClientSettings) -> tuple[str, dict[str, str]]:
    """Return what goes to the broker: the host and the query of the signed URL."""
    patience = Patience("b", "waiting", Limit(5_000, "an option", ends_early=True))
    message = SaslMechanismOAuth(**login_settings(settings, patience)).auth_bytes()
    token, end = message.removeprefix(b"n,,\x01auth=Bearer ").split(b"\x01", 1)
    assert end == b"\x01"
    url = urlsplit(base64.urlsafe_b64decode(token + b"=" * (-len(token) % 4)).decode())
    assert (url.scheme, url.path) == ("https", "/")
    return url.netloc, dict(parse_qsl(url.query))


def check(host: str, query: dict[str, str], region: str, key: str) -> None:
    assert host == f"kafka.{region}.amazonaws.com"
    assert query["Action"] == "kafka-cluster:Connect"
    assert re.fullmatch(rf"{key}/\d{{8}}/{region}/kafka-cluster/aws4_request", query["X-Amz-Credential"])
    assert query["X-Amz-Expires"] == "900"


@pytest.mark.parametrize(("servers", "region"), [(BROKER, "eu-west-1"), (SERVERLESS, "us-east-2")])
def test_the_default_credentials(servers: str, region: str) -> None:
    """The token is signed with the credentials of the environment, for the region in the broker's name."""
    check(*sent(config(servers=servers)), region, KEY)


def test_a_profile(monkeypatch: pytest.MonkeyPatch) -> None:
    """A profile has credentials, and the region where the broker's name has none."""
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")

    check(*sent(config('awsProfileName="dev"', "kafka.internal:9098")), "ap-south-1", "AKIADEV")


ROLE = ("ASIAROLE", f"{SECRET}-role", "session+token/==")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[dict[str, str]]]:
    """A stand-in for AWS's STS on this machine: what it was asked, with the scope of the signature."""
    requests: list[dict[str, str]] = []

    class Answers(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            form = dict(parse_qsl(self.rfile.read(int(self.headers["Content-Length"])).decode()))
            requests.append({**form, "scope": self.headers["Authorization"].partition("Credential=")[2].split(",")[0]})
            refused = form["RoleArn"].endswith("/closed")
            body = (
                "<ErrorResponse><Error><Code>AccessDenied</Code><Message>no</Message></Error></ErrorResponse>"
                if refused
                else "<AssumeRoleResponse><AssumeRoleResult><Credentials>"
                f"<AccessKeyId>{ROLE[0]}</AccessKeyId><SecretAccessKey>{ROLE[1]}</SecretAccessKey>"
                f"<SessionToken>{ROLE[2]}</SessionToken><Expiration>2100-01-01T00:00:00Z</Expiration>"
                "</Credentials></AssumeRoleResult></AssumeRoleResponse>"
            ).encode()
            self.send_response(403 if refused else 200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Be silent."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", f"http://127.0.0.1:{server.server_port}")
    yield requests
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_role(asked: list[dict[str, str]]) -> None:
    """A role is assumed with a profile's credentials, in the region of STS; its own credentials sign the token."""
    role = 'awsRoleArn="arn:aws:iam::1:role/reader" awsRoleSessionName="me" awsRoleExternalId="x1"'

    host, query = sent(config(f'awsProfileName="dev" {role} awsStsRegion="eu-north-1"'))

    check(host, query, "eu-west-1", ROLE[0])
    assert query["X-Amz-Security-Token"] == ROLE[2]
    (request,) = asked
    assert (request["RoleArn"], request["RoleSessionName"], request["ExternalId"]) == (
        "arn:aws:iam::1:role/reader",
        "me",
        "x1",
    )
    assert re.fullmatch(r"AKIADEV/\d{8}/eu-north-1/sts/aws4_request", request["scope"])


def test_the_keys_of_a_role_are_not_logged(asked: list[dict[str, str]], caplog: pytest.LogCaptureFixture) -> None:
    """Not even at level DEBUG: AWS's answer has the role's secret key, and botocore would log it."""
    with caplog.at_level(logging.DEBUG):
        sent(config('awsRoleArn="arn:aws:iam::1:role/reader"'))

    assert asked
    assert ROLE[1] not in caplog.text
    assert ROLE[2] not in caplog.text


def test_a_role_that_is_refused(asked: list[dict[str, str]]) -> None:
    """AWS's reason is in the error, at once; the credentials are not."""
    with pytest.raises(OptionError, match=r"gives no credentials for the login \(AccessDenied\)") as caught:
        sent(config('awsRoleArn="arn:aws:iam::1:role/closed"'))

    assert len(asked) == 1
    assert SECRET not in f"{caught.value!r}"


@pytest.mark.parametrize(
    ("entries", "servers", "message"),
    [
        ('awsProfileName="none"', BROKER, r"gives no credentials for the login \(ProfileNotFound\)"),
        ("", "kafka.internal:9098", r"lack AWS's region.*AWS_REGION"),
    ],
)
def test_what_is_missing_is_told(entries: str, servers: str, message: str) -> None:
    """A profile that is not there, and a region that nobody says, are errors at once, without a secret."""
    with pytest.raises(OptionError, match=message) as caught:
        sent(config(entries, servers))

    assert SECRET not in f"{caught.value!r}"


def test_no_credentials_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without credentials is an error at once."""
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(OptionError, match="AWS's configuration has no credentials"):
        sent(config())
