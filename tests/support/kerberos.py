"""A Kerberos realm on this machine, and a broker in it."""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from examples.local_kafka import LocalKafka
from examples.local_kafka.broker import free_ports

REALM = "TICDC.TEST"
READER = f"reader@{REALM}"
# The broker is `localhost` in its principal: Kerberos has names, no addresses.
HOST = "localhost"
_SECONDS = 20

PROGRAMS = ("krb5kdc", "kdb5_util", "kadmin.local", "kinit")


def program(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/usr/lib/mit/sbin")


@dataclass(frozen=True)
class Realm:
    """A realm with a user and a service."""

    config: Path
    reader: Path
    broker: Path


@contextmanager
def realm(folder: Path) -> Iterator[Realm]:
    (port,) = free_ports(1)
    config, profile = folder / "krb5.conf", folder / "kdc.conf"
    config.write_text(
        f"[libdefaults]\n default_realm = {REALM}\n dns_lookup_kdc = false\n dns_lookup_realm = false\n rdns = false\n"
        f" dns_canonicalize_hostname = false\n udp_preference_limit = 1\n default_ccache_name = FILE:{folder}/none\n"
        f"[realms]\n {REALM} = {{\n  kdc = 127.0.0.1:{port}\n }}\n"
    )
    profile.write_text(
        f"[kdcdefaults]\n kdc_listen = 127.0.0.1:{port}\n kdc_tcp_listen = 127.0.0.1:{port}\n"
        f"[realms]\n {REALM} = {{\n  database_name = {folder}/principal\n  key_stash_file = {folder}/stash\n"
        f"  acl_file = {folder}/acl\n }}\n[logging]\n kdc = FILE:{folder}/kdc.log\n"
    )
    environment = {**os.environ, "KRB5_CONFIG": str(config), "KRB5_KDC_PROFILE": str(profile)}

    def run(name: str, *arguments: str) -> None:
        subprocess.run([str(program(name)), *arguments], env=environment, check=True, capture_output=True, timeout=60)

    run("kdb5_util", "create", "-s", "-r", REALM, "-P", "master")
    found = Realm(config, folder / "reader.keytab", folder / "broker.keytab")
    for principal, keytab in ((READER, found.reader), (f"kafka/{HOST}@{REALM}", found.broker)):
        run("kadmin.local", "-q", f"addprinc -randkey {principal}")
        run("kadmin.local", "-q", f"ktadd -k {keytab} {principal}")
    kdc = subprocess.Popen([str(program("krb5kdc")), "-n"], env=environment, stderr=subprocess.DEVNULL)
    try:
        _await_port(port)
        yield found
    finally:
        kdc.terminate()
        kdc.wait()


def _await_port(port: int) -> None:
    deadline = time.monotonic() + _SECONDS
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            assert time.monotonic() < deadline, "the KDC does not answer"
            time.sleep(0.05)
        else:
            return


@contextmanager
def kerberos_kafka(found: Realm) -> Iterator[tuple[str, str]]:
    """Run a broker; give where clients connect without a login, and with GSSAPI."""
    (port,) = free_ports(1)
    kafka = LocalKafka(java_options=[f"-Djava.security.krb5.conf={found.config}"])
    listeners = f"PLAINTEXT://{kafka.bootstrap_servers},KERBEROS://{HOST}:{port}"
    kafka._properties = {
        "listeners": f"{listeners},CONTROLLER://{kafka.controller}",
        "advertised.listeners": listeners,
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,KERBEROS:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "listener.name.kerberos.gssapi.sasl.jaas.config": (
            "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true "
            f'keyTab="{found.broker}" principal="kafka/{HOST}@{REALM}";'
        ),
        "listener.name.kerberos.gssapi.connections.max.reauth.ms": 2000,
    }
    with kafka:
        yield kafka.bootstrap_servers, f"{HOST}:{port}"
