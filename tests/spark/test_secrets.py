"""TLS with client certificates, logins with SCRAM and tokens through Spark; nothing that it writes has a secret."""

import base64
import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from shutil import which
from typing import Any, NamedTuple

import pytest

from examples.local_kafka import create_topic
from tests.fixtures import PRELOAD
from tests.spark.standalone import SPARK, environment
from tests.spark.streams import write_rows
from tests.support.paths import ROOT
from tests.support.secure_kafka import KEY_PASSWORD, certificates_in, oauth_kafka, secure_kafka
from tests.support.token_server import AUDIENCE, CLIENT_SECRET, TokenServer

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.slow("a broker and a JVM of its own")]

JOB = str(Path(__file__).with_name("secrets_job.py"))
WRONG = "wr0ng-s3cr3t"
STORE_KEY = "st0re-s3cr3t"
# A store that nobody answers for: the warning that says so is searched too.
STORE = f"s3://AKIA0:{STORE_KEY}@nowhere/metrics?endpoint_override=http%3A%2F%2F127.0.0.1%3A1&region=us-east-1"
SECONDS = 600  # for all cases; they take 30 on two idle cores


class Run(NamedTuple):
    """What the job found, by case; what Spark's user interface shows; its folder; and the secrets."""

    cases: Mapping[str, Any]
    user_interface: str
    folder: Path
    secrets: list[str]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """All cases, in one process with a session of its own."""
    if which("openssl") is None:
        pytest.skip("openssl is not installed")
    files = certificates_in(tmp_path_factory.mktemp("certificates"))
    folder = tmp_path_factory.mktemp("run")
    with (
        secure_kafka(files) as kafka,
        TokenServer().running() as tokens,
        oauth_kafka(tokens.jwks_url, AUDIENCE) as oauth,
    ):
        for servers in (kafka.bootstrap_servers, oauth.bootstrap_servers):
            create_topic(servers, "t", 2)
            write_rows(servers, "t", *range(100), partitions=2)
        trust = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(files / "ca.pem")}
        in_files = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(files / "client.pem")}
        in_texts = {
            "ssl.truststore.type": "PEM",
            "ssl.truststore.certificates": (files / "ca.pem").read_text(),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.key": (files / "encrypted.key").read_text(),
            "ssl.keystore.certificate.chain": (files / "client.crt").read_text(),
            "ssl.key.password": KEY_PASSWORD,
        }
        tls = {"bootstrap.servers": kafka.ssl, "security.protocol": "SSL"}

        def scram(**other: str) -> dict[str, str]:
            login = {"sasl.mechanism": "SCRAM-SHA-512", "sasl.jaas.config": kafka.jaas(**other)}
            return {"bootstrap.servers": kafka.sasl_ssl, **login, "security.protocol": "SASL_SSL", **trust}

        tokens.seconds = 4.0  # they are renewed while Spark reads
        token = {"bootstrap.servers": oauth.short, "security.protocol": "SASL_PLAINTEXT", **tokens.options()}
        cases = {
            "certificates in files": {**tls, **trust, **in_files},
            "certificates in texts": {**tls, **in_texts},
            "SCRAM-SHA-512 over TLS": scram(),
            "a token": token,
            "a wrong client secret": {**token, "sasl.jaas.config": tokens.jaas(WRONG)},
            "a wrong password": scram(password=WRONG),
            "an unknown authority": {**tls, **in_files},
            "a wrong password of the key": {**tls, **in_texts, "ssl.key.password": WRONG},
        }
        given = {
            name: {"subscribe": "t", **{f"kafka.{option}": value for option, value in options.items()}}
            for name, options in cases.items()
        }
        given["certificates in files"]["metricsPath"] = STORE
        # The cases hold the secrets: they are not in the folder that is searched.
        (files / "cases.json").write_text(json.dumps(given))
        with (folder / "log").open("wb") as log:
            done = subprocess.run(
                [str(SPARK / "bin" / "spark-submit"), JOB, str(files / "cases.json"), str(folder / "report")],
                cwd=folder,
                env=environment(PYTHONPATH=os.pathsep.join([str(PRELOAD), str(ROOT)]), TMPDIR=str(folder)),
                stdout=log,
                stderr=log,
                check=False,
                timeout=SECONDS,
            )
        assert done.returncode == 0, (folder / "log").read_text(errors="replace")[-20_000:]
        keys = [line for name in ("client.key", "encrypted.key") for line in (files / name).read_text().splitlines()]
        secrets = [
            kafka.password,
            WRONG,
            KEY_PASSWORD,
            CLIENT_SECRET,
            *tokens.tokens,
            STORE_KEY,
            *(line for line in keys if len(line) > 30 and "-----" not in line),
        ]
    report = json.loads((folder / "report").read_text())
    return Run(report["cases"], report["user interface"], folder, secrets)


def leaks(folder: Path, secrets: list[str]) -> set[str]:
    """Return which secrets the files of a folder hold, as they are or in base64, and which files."""
    written = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    forms = [(secret, form) for secret in secrets for form in (secret.encode(), base64.b64encode(secret.encode())[:-4])]
    return {
        f"{secret} in {path.relative_to(folder)}"
        for path, data in written.items()
        for secret, form in forms
        if form in data
    }


def test_a_leak_is_found(tmp_path: Path) -> None:
    """The search below finds a secret, also one in base64: it does not pass because it is blind."""
    (tmp_path / "log").write_bytes(b"login with " + WRONG.encode())
    (tmp_path / "pickled").write_bytes(base64.b64encode(b"123" + WRONG.encode() + b"456"))

    assert leaks(tmp_path, [WRONG]) == {f"{WRONG} in log", f"{WRONG} in pickled"}


@pytest.mark.parametrize(
    "case", ["certificates in files", "certificates in texts", "SCRAM-SHA-512 over TLS", "a token"]
)
def test_who_is_let_in_reads_everything(run: Run, case: str) -> None:
    """Batch reads and streams work with client certificates, in files and in texts, and with SCRAM and tokens."""
    found = run.cases[case]

    assert found["batch"] == found["stream"] == list(range(100)), found


@pytest.mark.parametrize(
    ("case", "option"),
    [
        ("a wrong password", "sasl.jaas.config"),
        ("a wrong client secret", "/oauth2/token refuses the login"),
        ("an unknown authority", "ssl.truststore"),
        ("a wrong password of the key", "ssl.key"),
    ],
)
def test_who_is_not_let_in_is_told_why(run: Run, case: str, option: str) -> None:
    """A wrong password and an unknown authority are errors that name the option, without waiting for a time-out."""
    found = run.cases[case]

    assert option in found["error"]
    assert "AccessRefusedError" in found["error"]
    assert found["seconds"] < 30  # one that is tried until the time is over takes longer


def test_nothing_that_spark_writes_has_a_secret(run: Run) -> None:
    """No password or key is in a plan, an error, a checkpoint, a file, the event log or a log at INFO."""
    texts = "".join(path.read_text(errors="replace") for path in run.folder.rglob("*") if path.is_file())

    found = leaks(run.folder, run.secrets)

    assert found == set()
    assert not [secret for secret in run.secrets if secret in run.user_interface]
    # What was searched is what it should be: plans, an event log, checkpoints, and a log at INFO of driver and tasks.
    assert "== Physical Plan ==" in texts
    assert "SparkListenerSQLExecutionStart" in texts
    assert '"t":{"0":50' in texts.replace(" ", "")
    assert " INFO TaskSetManager" in texts
    assert " INFO Executor" in texts
    assert "BatchScan" in run.user_interface
    assert "metricsPath: s3://nowhere/metrics cannot be written: OSError" in texts
