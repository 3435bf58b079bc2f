"""A broker with TLS and logins, and the certificates for it and its clients."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from examples.local_kafka import LocalKafka
from examples.local_kafka.broker import HOST, free_ports

KEY_PASSWORD, STORE_PASSWORD = "k3y-s3cr3t", "st0re-s3cr3t"


@dataclass(frozen=True)
class SecureKafka:
    """Where clients connect, and a login."""

    bootstrap_servers: str
    ssl: str
    sasl_ssl: str
    sasl: str
    user: str
    password: str

    def jaas(self, password: str | None = None) -> str:
        module = "org.apache.kafka.common.security.scram.ScramLoginModule"
        return f'{module} required username="{self.user}" password="{password or self.password}";'


def certificates_in(folder: Path) -> Path:
    """Make an authority (`ca.pem`), and a key with its certificate for broker and client, each also in one file.

    `encrypted.key` is the client's key behind `KEY_PASSWORD`.
    """

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

    openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=test authority",
            "-keyout", "ca.key", "-out", "ca.pem")  # fmt: skip
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1\n")
    for name in ("broker", "client"):
        openssl("req", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name}", "-keyout", f"{name}.key",
                "-out", f"{name}.csr")  # fmt: skip
        openssl("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial",
                "-days", "2", "-extfile", "names", "-out", f"{name}.crt")  # fmt: skip
        both = (folder / f"{name}.key").read_text() + (folder / f"{name}.crt").read_text()
        (folder / f"{name}.pem").write_text(both)
    openssl("pkcs8", "-topk8", "-in", "client.key", "-passout", f"pass:{KEY_PASSWORD}", "-out", "encrypted.key")
    return folder


def stores_in(folder: Path) -> None:
    """Make Java's stores of the certificates in a folder: `trust.jks`, `trust.p12`, `client.jks`, `client.p12`.

    `STORE_PASSWORD` is the stores', `KEY_PASSWORD` that of the key in `client.jks`.
    """

    def keytool(*arguments: str) -> None:
        command = ["keytool", "-noprompt", "-storepass", STORE_PASSWORD, *arguments]
        subprocess.run(command, cwd=folder, check=True, capture_output=True)

    export = ["openssl", "pkcs12", "-export", "-in", "client.pem", "-certfile", "ca.pem", "-name", "me"]
    subprocess.run([*export, "-passout", f"pass:{STORE_PASSWORD}", "-out", "client.p12"], cwd=folder, check=True)
    for suffix, kind in (("jks", "JKS"), ("p12", "PKCS12")):
        keytool("-importcert", "-alias", "ca", "-file", "ca.pem", "-keystore", f"trust.{suffix}", "-storetype", kind)
    keytool("-importkeystore", "-srckeystore", "client.p12", "-srcstorepass", STORE_PASSWORD, "-srcalias", "me",
            "-destkeystore", "client.jks", "-deststoretype", "JKS", "-destkeypass", KEY_PASSWORD)  # fmt: skip


@contextmanager
def secure_kafka(certificates: Path, *, restricted: bool = False) -> Iterator[SecureKafka]:
    """Run a broker with these certificates; `ssl` wants one of its clients, too.

    With `restricted`, users with a login may only do what ACLs permit, and clients of `sasl_ssl` are sent to a port
    where nothing listens.
    """
    kafka = LocalKafka(sasl=True)
    ssl, sasl_ssl = (f"{HOST}:{port}" for port in free_ports(2))
    listeners = (
        f"PLAINTEXT://{kafka.bootstrap_servers},SASL_PLAINTEXT://{kafka.sasl_bootstrap_servers},"
        f"SSL://{ssl},SASL_SSL://{sasl_ssl}"
    )
    protocols = ("PLAINTEXT", "SASL_PLAINTEXT", "SSL", "SASL_SSL")
    scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    kafka._properties = {
        "listeners": f"{listeners},CONTROLLER://{kafka.controller}",
        "advertised.listeners": listeners,
        "listener.security.protocol.map": ",".join(["CONTROLLER:PLAINTEXT", *(f"{one}:{one}" for one in protocols)]),
        "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512,PLAIN",
        "listener.name.sasl_plaintext.scram-sha-512.sasl.jaas.config": scram,
        "listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config": scram,
        "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": scram,
        "listener.name.sasl_ssl.sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": certificates / "broker.pem",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": certificates / "ca.pem",
        "ssl.client.auth": "required",
    }
    if restricted:
        (nobody,) = free_ports(1)
        kafka._properties |= {
            "advertised.listeners": listeners.replace(sasl_ssl, f"{HOST}:{nobody}"),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
        }
    with kafka:
        yield SecureKafka(
            kafka.bootstrap_servers,
            ssl,
            sasl_ssl,
            str(kafka.sasl_bootstrap_servers),
            str(kafka.user),
            str(kafka.password),
        )


@dataclass(frozen=True)
class OAuthKafka:
    """Where clients connect, without a login and with OAUTHBEARER."""

    bootstrap_servers: str
    sasl: str
    short: str
    folder: Path


SHORT_SECONDS = 2


@contextmanager
def oauth_kafka(jwks_url: str, audience: str) -> Iterator[OAuthKafka]:
    """Run a broker that takes tokens which were signed with one of the keys at a URL."""
    sasl, short = (f"{HOST}:{port}" for port in free_ports(2))
    kafka = LocalKafka(java_options=[f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={jwks_url}"])
    listeners = f"PLAINTEXT://{kafka.bootstrap_servers},TOKEN://{sasl},SHORT://{short}"
    security = "org.apache.kafka.common.security.oauthbearer"
    kafka._properties = {
        "listeners": f"{listeners},CONTROLLER://{kafka.controller}",
        "advertised.listeners": listeners,
        "listener.security.protocol.map": (
            "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,TOKEN:SASL_PLAINTEXT,SHORT:SASL_PLAINTEXT"
        ),
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": jwks_url,
        # By default Kafka 4.1 checks no signature: it chooses the validator that is meant for clients.
        "sasl.oauthbearer.jwt.validator.class": f"{security}.BrokerJwtValidator",
        "sasl.oauthbearer.expected.audience": audience,
        "sasl.oauthbearer.clock.skew.seconds": 0,
        "listener.name.short.oauthbearer.connections.max.reauth.ms": SHORT_SECONDS * 1000,
    }
    for name in ("token", "short"):
        prefix = f"listener.name.{name}.oauthbearer.sasl"
        kafka._properties[f"{prefix}.jaas.config"] = f"{security}.OAuthBearerLoginModule required;"
        kafka._properties[f"{prefix}.server.callback.handler.class"] = f"{security}.OAuthBearerValidatorCallbackHandler"
    with kafka:
        assert kafka.folder is not None
        yield OAuthKafka(kafka.bootstrap_servers, sasl, short, kafka.folder)
