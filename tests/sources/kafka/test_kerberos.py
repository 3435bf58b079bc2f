"""GSSAPI at a real broker, in a Kerberos realm on this machine."""

import logging
import os
import re
import subprocess
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from examples.local_kafka import create_topic, produce
from tests.sources.kafka.reading import DEADLINE, numbers_of
from tests.support.kerberos import PROGRAMS, READER, Realm, kerberos_kafka, program, realm
from ticdc_source.errors import KafkaUnavailableError, OptionError
from ticdc_source.options.offsets import OffsetRange
from ticdc_source.options.options import Options
from ticdc_source.sources.kafka import KafkaCluster

pytestmark = [pytest.mark.broker, pytest.mark.long("a KDC and a broker of its own")]

KRB5 = "com.sun.security.auth.module.Krb5LoginModule required"
RECORDS = 200


@pytest.fixture(scope="module")
def kerberos(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Realm]:
    """A realm; what Kerberos' library knows in this process is that realm alone."""
    missing = [name for name in PROGRAMS if program(name) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} not installed: apt-get install krb5-kdc krb5-admin-server krb5-user")
    if find_spec("gssapi") is None:
        pytest.skip("gssapi is not installed: apt-get install libkrb5-dev, then pip install gssapi")
    with realm(tmp_path_factory.mktemp("realm")) as found, pytest.MonkeyPatch.context() as patch:
        patch.setenv("KRB5_CONFIG", str(found.config))
        yield found


@pytest.fixture(scope="module")
def servers(kerberos: Realm) -> Iterator[str]:
    with kerberos_kafka(kerberos) as (open_servers, servers):
        create_topic(open_servers, "t")
        for start in range(0, RECORDS, 20):  # each is a record batch, and a fetch of its own
            numbers = range(start, start + 20)
            produce(open_servers, "t", [(0, None, b"%d" % number, [], None) for number in numbers])
        yield servers


def options(servers: str, entries: str, **more: str) -> Options:
    """The options of a read with a login; `a_b` is `kafka.a.b`."""
    given = {
        "bootstrap.servers": servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "sasl.jaas.config": f"{KRB5} {entries};",
        **{name.replace("_", "."): value for name, value in more.items()},
    }
    return Options.of({"subscribe": "t", **{f"kafka.{name}": value for name, value in given.items()}})


def with_keytab(keytab: Path, principal: str = READER) -> str:
    return f'useKeyTab=true storeKey=true keyTab="{keytab}" principal="{principal}"'


def test_a_keytab_lets_us_in(servers: str, kerberos: Realm, caplog: pytest.LogCaptureFixture) -> None:
    """Look-ups and a read work with a keytab, also where the broker wants a login again during the read."""
    caplog.set_level(logging.INFO, "kafka.net.connection")
    given = options(servers, with_keytab(kerberos.reader), max_partition_fetch_bytes="100")
    with KafkaCluster(given) as cluster:
        assert cluster.resolve_ranges() == [OffsetRange("t", 0, 0, RECORDS)]

    assert numbers_of(given, RECORDS, pause=0.3) == list(range(RECORDS))
    assert f"Authenticated as {READER}" in caplog.text
    assert f"(connected)>: Authenticated as {READER}" in caplog.text
    assert "KRB5CCNAME" not in os.environ


def test_a_ticket_cache_lets_us_in(servers: str, kerberos: Realm, tmp_path: Path) -> None:
    """`useTicketCache` takes the tickets of kinit."""
    cache = tmp_path / "tickets"
    given = options(servers, f'useTicketCache=true ticketCache="{cache}"')
    with pytest.raises(OptionError, match=r"Kerberos gives no ticket.*Check kafka\.sasl\.jaas\.config"):
        numbers_of(given, RECORDS)
    kinit = [str(program("kinit")), "-k", "-t", str(kerberos.reader), "-c", str(cache), READER]
    subprocess.run(kinit, check=True, timeout=60)

    assert numbers_of(given, RECORDS) == list(range(RECORDS))


def test_a_realm_that_is_down(kerberos: Realm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A KDC that does not answer is an error within seconds that names Kerberos."""
    config = tmp_path / "krb5.conf"
    config.write_text(re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:1", kerberos.config.read_text()))
    monkeypatch.setenv("KRB5_CONFIG", str(config))
    keytab = tmp_path / "other.keytab"  # with a ticket of its own
    keytab.write_bytes(kerberos.reader.read_bytes())
    began = time.monotonic()
    with (
        pytest.raises(KafkaUnavailableError, match=r"no ticket for the login at Kafka: Kerberos: .*krb5\.conf"),
        KafkaCluster(options("localhost:1", with_keytab(keytab))) as cluster,
    ):
        cluster.partitions()

    assert time.monotonic() - began < DEADLINE


def test_logins_that_are_refused(servers: str, kerberos: Realm, tmp_path: Path) -> None:
    """Another principal, a keytab that is missing, and a service that nobody has are told at once."""
    began = time.monotonic()
    for given, message in (
        (options(servers, with_keytab(kerberos.reader, "nobody@TICDC.TEST")), "Kerberos gives no ticket"),
        (options(servers, with_keytab(tmp_path / "none")), "there is no keytab .*none on this machine"),
        (
            options(servers, with_keytab(kerberos.reader), sasl_kerberos_service_name="other"),
            r"refuses the login: .*Server.*not found in Kerberos database.*kerberos\.service\.name",
        ),
    ):
        with pytest.raises(OptionError, match=message), KafkaCluster(given) as cluster:
            cluster.partitions()

    assert time.monotonic() - began < DEADLINE
