"""`sync.toml` and `SyncConfig`: what is read, where it goes, and what is refused; without Spark."""

import inspect
from dataclasses import fields, replace
from pathlib import Path

import pytest

from lakehouse.tests.syncs import context
from ticdc_lakehouse import merge_into
from ticdc_lakehouse.cli.sync import EXAMPLE
from ticdc_lakehouse.syncs.config import MaintainConfig
from ticdc_lakehouse.syncs.sync_toml import read_toml
from ticdc_lakehouse.targets.data_layout import DataLayout, WriteSettings
from ticdc_source.errors import OptionError
from ticdc_source.schema.table_name import TableName

FILE = """
checkpoint = "/data/checkpoints/shop"
tables = ["shop.*"]

[source]
subscribe = "tidb-shop"
"kafka.bootstrap.servers" = "localhost:9092"
timeZone = "Asia/Shanghai"
maxOffsetsPerTrigger = 1000
protocol = "canal-json"

[target]
format = "delta"
path = "/data/lake"

[table."shop.orders"]
deletes = "hard"
schemaHints = "amount decimal(12,2)"
tableDDL = "CREATE TABLE shop.orders (id bigint PRIMARY KEY)"

[table."shop.refunds"]
skip = true
"""


def edited(old: str, new: str) -> str:
    assert old in FILE
    return FILE.replace(old, new)


def test_the_example_is_a_configuration() -> None:
    """The file that the command prints can be read, as it is and with all its comments taken away."""
    text = EXAMPLE.read_text(encoding="utf-8")
    config = read_toml(text)
    lines = (line.removeprefix("# ") for line in text.splitlines()[2:])
    whole = "\n".join(line for line in lines if not ("{ env" in line or line.startswith('path = "s3:')))

    assert (config.format, config.reads, config.tables) == ("delta", ("tidb-shop",), ())
    assert read_toml(whole).of_table(TableName("shop", "orders")).keys == ("id",)


def test_files_instead_of_topics() -> None:
    """A folder of a storage sink stands for topics and brokers; with both, or neither, it is an error."""
    source = 'subscribe = "tidb-shop"\n"kafka.bootstrap.servers" = "localhost:9092"'
    config = read_toml(FILE.replace(source, 'path = "s3://user:secret@bucket/feed"\n"csv.quote" = "\'"'))

    assert config.reader_options() == {
        "startingOffsets": "earliest",
        "path": "s3://user:secret@bucket/feed",
        "csv.quote": "'",
        "maxOffsetsPerTrigger": "1000",
        "protocol": "canal-json",
        "tableDDL": "CREATE TABLE shop.orders (id bigint PRIMARY KEY)",
        "outputFormat": "record",
    }
    assert config.decode_options()["csv.quote"] == "'"
    assert config.reads == ("s3://bucket/feed",)
    for text in (FILE.replace("[source]", '[source]\npath = "x"'), FILE.replace('subscribe = "tidb-shop"', "")):
        with pytest.raises(OptionError, match=r"source\.subscribe"):
            read_toml(text)


def test_each_option_goes_where_it_has_a_meaning() -> None:
    """The reader gets options of Kafka, the decoder those of columns, and both those of messages."""
    config = read_toml(FILE)

    assert config.reader_options() == {
        "startingOffsets": "earliest",
        "kafka.bootstrap.servers": "localhost:9092",
        "maxOffsetsPerTrigger": "1000",
        "protocol": "canal-json",
        "tableDDL": "CREATE TABLE shop.orders (id bigint PRIMARY KEY)",
        "subscribe": "tidb-shop",
        "outputFormat": "record",
    }
    assert config.decode_options() == {
        "timeZone": "Asia/Shanghai",
        "protocol": "canal-json",
        "tableDDL": "CREATE TABLE shop.orders (id bigint PRIMARY KEY)",
        "tables": "shop.*",
        "metadataColumnPrefix": "_",
        "onDestructiveDDL": "ignore",  # the targets follow it
    }
    assert config.table_options() == {"shop.orders": {"schemaHints": "amount decimal(12,2)"}}


def test_tables_are_selected_by_pattern_and_left_out_by_name() -> None:
    """A table is copied if a pattern matches it and its section does not skip it; names have no case."""
    config = read_toml(FILE)
    names = [TableName("shop", "orders"), TableName("SHOP", "Refunds"), TableName("other", "orders")]

    assert [config.selects(name) for name in names] == [True, False, False]
    assert config.of_table(TableName("Shop", "ORDERS")).deletes == "hard"


def test_maintenance_and_layouts() -> None:
    """`[maintain]` turns maintenance on, with defaults for what it leaves out; a layout belongs to a table."""
    assert read_toml(FILE).maintain is None
    config = read_toml(edited("skip = true", "cluster_by = ['id', 'at']\n[maintain]\npurge_deleted = '30d'"))

    assert config.maintain == MaintainConfig(every="6h", keep="7d", compact=True, purge_deleted="30d")
    assert config.of_table(TableName("shop", "refunds")).layout == DataLayout(cluster_by=("id", "at"))


@pytest.mark.parametrize(("option", "reads"), [
    ({"subscribe": "a, b.c"}, ("a", "b.c")),
    ({"SUBSCRIBEPATTERN": "tidb-.*"}, ("tidb-.*",)),
])  # fmt: skip
def test_topics_are_names_or_a_pattern(option: dict[str, str], reads: tuple[str, ...]) -> None:
    """They are Spark's options, and what the status of the copy says that it is of."""
    config = replace(context.config(), source={"kafka.bootstrap.servers": "127.0.0.1:1", **option})

    assert config.reads == reads
    assert config.reader_options().items() >= option.items()


def test_secrets_come_from_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A value may be that of an environment variable, or the text of a file beside sync.toml."""
    monkeypatch.setenv("TRUST_PASSWORD", "one")
    (tmp_path / "key").write_text("two\n")
    text = edited(
        'protocol = "canal-json"',
        'kafka.ssl.truststore.password = { env = "TRUST_PASSWORD" }\n"kafka.ssl.key.password" = { file = "key" }',
    ).replace('"kafka.bootstrap.servers"', "kafka.bootstrap.servers")
    options = read_toml(text, folder=tmp_path).reader_options()

    assert (options["kafka.ssl.truststore.password"], options["kafka.ssl.key.password"]) == ("one", "two")
    assert options["kafka.bootstrap.servers"] == "localhost:9092"


def test_settings_of_spark_from_elsewhere_are_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever their names are, but for those that Spark needs when it starts; the name of a secret always counts."""
    monkeypatch.setenv("HUSH", "hush")
    (tmp_path / "header").write_text("hidden")
    section = """
[spark]
"spark.sql.catalog.lake.header.X-Api-Auth" = { env = "HUSH" }
"spark.sql.catalog.lake.uri" = "https://catalog"
"spark.driver.memory" = { env = "HUSH" }
"spark.jars.packages" = { env = "HUSH" }
"spark.driver.password" = { env = "HUSH" }
spark.hadoop.fs.auth = { file = "header" }
spark.hadoop.fs.secret = "open"
"""
    config = read_toml(FILE + section, folder=tmp_path)

    assert config.secret_spark == {
        "spark.sql.catalog.lake.header.X-Api-Auth": "hush",
        "spark.driver.password": "hush",
        "spark.hadoop.fs.auth": "hidden",
        "spark.hadoop.fs.secret": "open",
    }
    text = config.redact("401 for hush and hidden at https://catalog")
    assert text == "401 for … and … at https://catalog"
    with pytest.raises(OptionError, match="secret_settings"):
        read_toml('secret_settings = ["x"]\n' + FILE)


def test_a_table_is_written_in_one_way() -> None:
    """Its load and its changes have the same settings: those of the table, and of the sync where it has none."""
    config = read_toml(edited('deletes = "hard"', "partition_by = ['region']\nlog = true"))
    settings = config.write_settings(TableName("shop", "orders"))

    assert settings == WriteSettings(
        format="delta", deletes="soft", column_prefix="_", time_zone="Asia/Shanghai", time_as="micros",
        layout=DataLayout(partition_by=("region",)), as_log=True,
    )  # fmt: skip
    accepted = {*inspect.signature(merge_into).parameters}
    assert {one.name for one in fields(WriteSettings)} - {"as_log", "layout"} <= accepted


def test_a_tidb_shows_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    """The address of TiDB, its user and its password are in the configuration, and not in its text."""
    monkeypatch.setenv("TIDB_PASSWORD", "hush")
    section = """
[tidb]
url = "tidb.internal:4001"
user = "reader"
password = { env = "TIDB_PASSWORD" }
ssl_mode = "required"
rows_per_range = 5000
"""
    config = read_toml(FILE + section)

    assert config.tidb is not None
    assert config.tidb.options() == {
        "tidb.url": "tidb.internal:4001", "tidb.user": "reader", "tidb.password": "hush", "tidb.ssl.mode": "required",
    }  # fmt: skip
    assert config.tidb.rows_per_range == 5000
    assert not any(secret in repr(config) for secret in ("hush", "reader", "tidb.internal"))
    assert read_toml(FILE).tidb is None


def test_arguments_replace_what_the_file_says() -> None:
    """A value given by section and key takes the place of the file's, with dots in the names of options."""
    config = read_toml(FILE, {"target.path": "/other", "source.kafka.bootstrap.servers": "h:1", "trigger": "5 seconds"})

    assert (config.path, config.trigger) == ("/other", "5 seconds")
    assert config.reader_options()["kafka.bootstrap.servers"] == "h:1"


@pytest.mark.parametrize(("text", "error"), [
    ("checkpoint = ", "sync.toml: "),
    (edited("checkpoint =", "chekpoint ="), "Unknown key 'chekpoint' .* top of sync.toml; did you mean checkpoint?"),
    (edited("path =", "paths ="), r"Unknown key 'paths' in \[target\]; did you mean path?"),
    (edited("timeZone", "timeZones"), "Unknown option 'timeZones'; did you mean 'timeZone'?"),
    (edited("schemaHints", "schemaHint"), r"Unknown key 'schemaHint' in \[table.*\]; did you mean schemaHints?"),
    (edited("skip = true", "key = ['id']"), r"Unknown key 'key' in \[table.*\]; did you mean keys?"),
    (edited("skip = true", "options = { tableDDL = 'x' }"), r"Unknown key 'options' in \[table"),
    (edited('"/data/checkpoints/shop"', "1"), "checkpoint: expected a string"),
    (edited('format = "delta"', 'format = "orc"'), "target.format = 'orc': it must be 'delta' or 'iceberg'"),
    (edited('format = "delta"', ""), "target.format is missing: set it in sync.toml, or as --format"),
    (edited('path = "/data/lake"', ""), "either target.path, a folder, or"),
    (edited('path = "/data/lake"', 'path = ""\ncatalog = "lake"'), "either target.path, a folder, or"),
    (edited('path = "/data/lake"', 'path = "/data/lake"\ncatalog = ""'), "either target.path, a folder, or"),
    (edited('path = "/data/lake"', 'catalog = ""'), "either target.path, a folder, or"),
    (edited('subscribe = "tidb-shop"', ""), "Set what to read: source.subscribe"),
    (edited('"tidb-shop"', '["a"]'), "source.subscribe: expected a string"),
    (edited('subscribe = "tidb-shop"', 'topics = ["tidb-shop"]'), "source.topics: write subscribe"),
    (edited('"tidb-shop"', '" , "'), "source.subscribe = '': not a topic"),
    (edited('"tidb-shop"', '"tidb-.*"'), "not a topic. For a regular expression, use source.subscribePattern"),
    (edited("timeZone =", 'Subscribe = "b"\ntimeZone ='), "has an option twice"),
    (edited("timeZone =", "outputFormat ="), "source.outputFormat cannot be set: remove it; a sync reads records"),
    (edited("timeZone =", "assign ="), "source.assign cannot be set: write subscribe"),
    (edited("timeZone =", "snapshot ="), r"source.snapshot cannot be set: write \[tidb\]"),
    (edited('"Asia/Shanghai"', '"Mars/Phobos"'), "timeZone"),
    (edited('"Asia/Shanghai"', '{ env = "NOT_THERE" }'), "the environment variable NOT_THERE is not set"),
    (edited('"Asia/Shanghai"', '{ file = "not-there" }'), "source.timeZone: the file not-there cannot be read"),
    (edited("tables =", "parallel = 0\ntables ="), "parallel = 0: it must be from 1 to 64"),
    (edited("tables =", "prometheus_port = 70000\ntables ="), "prometheus_port = 70000: it must be from 0 .* to 65535"),
    (edited("tables =", "views = true\ntables ="), "views = true: a folder has no views. Remove views = true"),
    (edited("tables =", 'time_as = "x"\ntables ='), "time_as = 'x': it must be 'micros' or 'text'"),
    (f"heal = true\n{FILE}", r"heal = true: tables are read again from TiDB. Add \[tidb\]"),
    (edited("skip = true", "log = true\nhistory = true"), "set log = true, for the log alone"),
    (edited("skip = true", 'skip = "yes"'), "skip = 'yes': expected true or false"),
    (edited("[target]", "[maintain]\nevry = '1h'\n[target]"), r"'evry' in \[maintain\]; did you mean every?"),
    (edited("[target]", "[maintain]\nevery = 'soon'\n[target]"), "maintain.every = 'soon': expected a duration"),
    (edited("[target]", "[maintain]\nevery = '5s'\n[target]"), "maintain.every = '5s': it must be at least 1m"),
    (edited("[target]", "[maintain]\nkeep = '10m'\n[target]"), "maintain.keep = '10m': it must be at least 1h"),
    (edited("[target]", "[maintain]\npurge_deleted = '1m'\n[target]"), "maintain.purge_deleted = '1m': it must be at"),
    (edited("skip = true", "partition_by = 'region'"), "partition_by = 'region': expected a list of strings"),
    (edited("skip = true", "partition_by = ['days(at)']"), r'\[table."shop.refunds"\]: Delta partitions by columns'),
    (edited('table."shop.refunds"', 'table."refunds"'), "expected the name of a table"),
    (f"{FILE}[tidb]\nuser = 'reader'", "tidb.url is missing in sync.toml; `ticdc-lakehouse sync --example`"),
    (f"{FILE}[tidb]\nurl = 'h'\nuser = 'u'\npasword = 'x'", r"Unknown key 'pasword' in \[tidb\]; did you mean"),
    (f"{FILE}[tidb]\nurl = 'mysql://h:4000/'", "tidb.user is missing in sync.toml"),
    (f"{FILE}[tidb]\nurl = 'mysql://h:4000/'\nuser = 'u'", "Option 'tidb.url': expected host:port"),
    (f"{FILE}[tidb]\nurl = 'jdbc:mysql://h/'\nuser = 'u'", "Option 'tidb.url': expected host:port"),
    (f"{FILE}[tidb]\nurl = 'h'\nuser = 'u'\nssl_mode = 'on'", "tidb.ssl_mode = 'on': it must be 'disabled' or"),
    (f"{FILE}[tidb]\nurl = 'h'\nuser = 'u'\nrows_per_range = 0", "tidb.rows_per_range = 0: it must be 1 or more"),
])  # fmt: skip
def test_what_is_wrong_is_refused_before_anything_is_written(text: str, error: str) -> None:
    """The error names the key, what it expected, and the nearest key that exists."""
    with pytest.raises(OptionError, match=error):
        read_toml(text)
