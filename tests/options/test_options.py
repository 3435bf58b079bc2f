"""The options: each row of the table, refusals and their messages, and no secret in any text."""

import pickle
import re
import traceback
from collections.abc import Mapping

import pytest

from ticdc_source.errors import OptionError
from ticdc_source.options.option import Option
from ticdc_source.options.options import OPTIONS, Options
from ticdc_source.options.ranges import validate

REQUIRED = {"kafka.bootstrap.servers": "b:9092", "subscribe": "t"}
ROWS = pytest.mark.parametrize("option", OPTIONS, ids=lambda row: row.name)
ATTRIBUTES = {option.name: option.field for option in OPTIONS}


def parsed(given: Mapping[str, str]) -> Options:
    return Options.of({**REQUIRED, **given})


def refusal(name: str, text: str) -> str:
    with pytest.raises(OptionError) as caught:
        parsed({name: text})
    return str(caught.value)


@ROWS
def test_every_default_parses(option: Option) -> None:
    """The option accepts the default that the documentation prints, and has it if it is not given."""
    expected = option.parse(option.default) if option.default else None

    options = Options.of({"kafka.bootstrap.servers": "b:9092", "subscribePattern": "x"})
    if option.name != "subscribePattern":
        assert getattr(options, option.field) == expected


@ROWS
def test_every_row_can_stand_in_a_markdown_table(option: Option) -> None:
    """A meaning is one line without a bar; the attribute is the documented name in snake case."""
    assert option.field == re.sub(r"(?<=[a-z])(?=[A-Z])", "_", option.name).replace(".", "_").lower()
    assert option.meaning
    assert not set("|\n") & set(option.name + option.default + option.meaning)


def test_streams_refuse_what_only_batch_reads_have() -> None:
    texts = {"endingOffsets": "latest", "endingTimestamp": "1", "endingOffsetsByTimestamp": '{"t":{"0":1}}'}

    assert {option.name for option in OPTIONS if option.only == "batch"} == texts.keys()
    for name, text in texts.items():
        with pytest.raises(OptionError, match=rf"not valid in streaming queries \(option '{name}'\)"):
            validate(parsed({name: text}), streaming=True)


def test_names_are_compared_without_case() -> None:
    options = parsed({"FAILONDATALOSS": "false", "Kafka.Client.Id": "me"})

    assert options.fail_on_data_loss is False
    assert options.is_given("failOnDataLoss")
    assert not options.is_given("mode")
    assert options.kafka["client.id"] == "me"


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        *(
            ("fetchOffset.retryIntervalMs", text, milliseconds)
            for text, milliseconds in (
                *(("250", 250), ("250ms", 250), ("30s", 30_000), ("2 m", 120_000), ("2min", 120_000)),
                *(("1H", 3_600_000), ("1d", 86_400_000), ("0", 0)),
            )
        ),
        *(
            ("maxBytesPerBatch", text, size)
            for text, size in (
                *(("1", 1), ("10b", 10), ("512k", 512 << 10), ("32 MB", 32 << 20), ("1g", 1 << 30), ("2KB", 2048)),
            )
        ),
        ("tables", "shop.orders", (("shop", "orders"),)),
        ("tables", " shop . orders , crm.* ", (("shop", "orders"), ("crm", "*"))),
        ("tables", "`a.b`.`c,d`", (("a.b", "c,d"),)),
        ("tables", "`my shop`.`order items`", (("my shop", "order items"),)),
        ("tables", "`tick``s`.t", (("tick`s", "t"),)),
        ("tables", "日本.注文", (("日本", "注文"),)),
        ("columns", "id, `a,b`,`tick``s`", ("id", "a,b", "tick`s")),
        ("mode", " permissive ", "PERMISSIVE"),
        ("protocol", " Canal-JSON ", "canal-json"),
        ("operations", "Delete, INSERT", frozenset({"insert", "delete"})),
        ("startingOffsets", "Earliest", "earliest"),
        ("startingOffsets", '{"$ids": {"t": "a"}, "$init": {"t": {"0": 1}}, "t": {"0": 12}}', {"t": {0: 12}}),
        ("endingOffsets", '{"t":{"0":-1}}', {"t": {0: -1}}),
    ],
)
def test_a_value_is_what_the_text_says(name: str, text: str, expected: object) -> None:
    assert getattr(parsed({name: text}), ATTRIBUTES[name]) == expected


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        # A misspelt `true` must not turn off a check.
        *(
            ("failOnDataLoss", text, f"expected true or false, got '{text}'")
            for text in ("yes", "1", "on", "ture", "", "t")
        ),
        ("inferSchema.timeoutMs", "2 weeks", "expected a duration such as 500ms, 30s or 15m, got '2 weeks'"),
        ("inferSchema.timeoutMs", "-1", "expected a duration"),
        ("maxBytesPerBatch", "0", "expected a size such as 512k, 32m or 1g, got '0'"),
        ("maxBytesPerBatch", "1.5m", "expected a size"),
        ("startingTimestamp", "yesterday", "expected a whole number: milliseconds since the epoch, got 'yesterday'"),
        ("startingTimestamp", "2026-09-21T14:14:00Z", "'2026-09-21T14:14:00Z'; did you mean 1790000040000?"),
        ("endingTimestamp", "2026-09-21 16:14:00.123+02:00", "; did you mean 1790000040123?"),
        ("endingTimestamp", " 2026-09-21 14:14:00", "; did you mean 1790000040000 (in UTC)?"),
        ("endingTimestamp", "2026-09-21", "; did you mean 1789948800000 (in UTC)?"),
        ("startingTimestamp", "-1", "expected a whole number, at least 0, got '-1'"),
        ("startingTimestamp", "9" * 5000, "expected a whole number, at least 0, got '999"),
        ("startingCommitTs", f"{1 << 63}", "expected a whole number, at most 9223372036854775807"),
        ("maxTriggerDelay", f"{'9' * 19}d", "expected a duration"),
        ("maxTriggerDelay", "9" * 5000, "expected a duration"),
        ("maxBytesPerBatch", f"{1 << 34}g", "expected a size"),
        ("startingOffsets", f'{{"t":{{"0":{1 << 63}}}}}', "for t-0 is too large for Kafka"),
        ("startingOffsets", f'{{"t":{{"{1 << 31}":0}}}}', "is too large for Kafka"),
        ("startingOffsetsByTimestamp", f'{{"t":{{"0":{1 << 70}}}}}', "is too large for Kafka"),
        ("startingOffsets", '{"t":' * 100_000, "Expected e.g."),
        ("assign", f'{{"t":[{1 << 31}]}}', "Expected e.g."),
        ("minPartitions", "0", "expected a whole number, at least 1, got '0'"),
        ("inferSchema.maxRecords", "-3", "expected a whole number, at least 1"),
        ("endingCommitTs", "soon", "expected a whole number, or 'resolved', got 'soon'"),
        ("startingOffsets", "first", 'expected earliest | latest | JSON such as {"topicA":{"0":23,"1":-1},'),
        ("startingOffsets", "earlyest", "got 'earlyest'; did you mean earliest?"),
        ("startingOffsets", '{"t":1}', 'Expected e.g. {"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}'),
        ("startingOffsetsByTimestamp", "[]", 'Expected e.g. {"topicA":{"0":1700000000000}'),
        ("assign", "t", 'Expected e.g. {"topicA":[0,1],"topicB":[0,1]}, got \'t\''),
        ("onSchemaDrift", "rescued", "expected one of fail, ignore, rescue, got 'rescued'; did you mean rescue?"),
        ("mode", "IGNORE", "expected one of FAILFAST, PERMISSIVE, DROPMALFORMED"),
        ("operations", "insert,upsert", "'upsert': expected one of insert, update, delete"),
        ("operations", " , ", "expected one or more of insert, update, delete"),
        ("columns", "", "expected at least one name"),
        ("columns", "`a", "a backtick is not closed"),
        ("timeZone", "Mars/Olympus", "a name such as Asia/Shanghai or an offset such as +08:00, got 'Mars/Olympus'"),
        ("timeZone", "+99:99", "a name such as Asia/Shanghai or an offset such as +08:00, got '+99:99'"),
        ("tables", "orders", "expected database.table for 'orders'"),
        ("tables", "a.b.c", "expected database.table for 'a.b.c'"),
        ("tables", "`shop.orders", "a backtick is not closed"),
        ("tables", "", "expected database.table, or database.*"),
    ],
)
def test_a_bad_value_is_refused_with_what_is_expected(name: str, text: str, expected: str) -> None:
    message = refusal(name, text)

    assert message.startswith(f"Option '{name}': ")
    assert expected in message


SERVERS = {"kafka.bootstrap.servers": "b:9092"}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        # Spark loses the options of CREATE TABLE, so the message suggests a temporary view.
        ({"subscribe": "t"}, r"'kafka\.bootstrap\.servers' must be specified.*TEMPORARY VIEW"),
        ({"subscribe": "t", "kafka.bootstrap.servers": " "}, "TEMPORARY VIEW"),
        (SERVERS, "One of the following options must be specified"),
        ({**REQUIRED, "assign": '{"t":[0]}'}, r"Only one of .* Given: subscribe, assign\."),
    ],
)
def test_brokers_and_topics_are_given_once(given: Mapping[str, str], message: str) -> None:
    """Without them there is nothing to read, and two choices of topics are a contradiction."""
    with pytest.raises(OptionError, match=message):
        Options.of(given)


SECRET = "hunter2-s3cret"
SECRETS = {
    "kafka.sasl.jaas.config": f'PlainLoginModule required username="u" password="{SECRET}";',
    "kafka.ssl.key.password": SECRET,
    "kafka.sasl_plain_password": SECRET,
}


def test_a_secret_is_not_in_what_prints() -> None:
    """`repr`, `str` and formats show the names of the given options and no value."""
    options = parsed(SECRETS)

    assert SECRET not in f"{options!r} {options} {options.given} {vars(options).keys()}"
    assert "kafka.sasl.jaas.config" in repr(options)


@pytest.mark.parametrize("wrong", [{"kafka.bootstrap.servers": ""}, {"assign": "{}"}, {"mode": "x"}], ids=str)
def test_a_secret_is_not_in_errors(wrong: Mapping[str, str]) -> None:
    with pytest.raises(OptionError) as caught:
        parsed({**SECRETS, **wrong})

    assert SECRET not in "".join(traceback.format_exception(caught.value))


def test_a_secret_option_is_not_in_its_own_error() -> None:
    assert {option.name for option in OPTIONS if option.secret} == {
        "claimCheckLocation",
        "path",
        "metricsPath",
        "tidb.url",
        "tidb.password",
        "schema.registry.url",
        "basic.auth.user.info",
        "bearer.auth.token",
        "schema.registry.ssl.truststore.password",
        "schema.registry.ssl.keystore.password",
        "schema.registry.ssl.key.password",
    }
    assert SECRET not in refusal("claimCheckLocation", f"s3://bucket/folder?secret-access-key={SECRET}")
    assert SECRET not in refusal("metricsPath", f"ftp://me:{SECRET}@host/folder")
    assert SECRET not in refusal("schema.registry.url", f"ftp://me:{SECRET}@host")
    assert SECRET not in refusal("basic.auth.user.info", SECRET)


def test_options_travel_to_workers() -> None:
    options = parsed({"tables": "shop.*", "kafka.client.id": "me"})

    arrived = pickle.loads(pickle.dumps(options))  # noqa: S301 (what was pickled a moment ago)

    assert arrived == options
    assert (arrived.kafka, arrived.given) == (options.kafka, options.given)


@pytest.mark.parametrize("name", [option.name for option in OPTIONS if "event" not in option.scope.outputs])
def test_an_option_of_typed_columns_is_refused_for_events(name: str) -> None:
    """An option that does not apply to an output is refused with the outputs that it applies to, and a remedy."""
    value = {"unspecifiedDecimal": "string", "zeroDate": "null", "onSchemaDrift": "rescue"}.get(name, "a int")

    parsed({name: value, "outputFormat": "envelope"})
    with pytest.raises(OptionError, match=f"'{name}' applies to outputFormat=changelog, envelope, not to event. Its"):
        parsed({name: value, "outputFormat": "event"})


def test_options_of_batch_reads_and_of_streams_do_not_go_together() -> None:
    """An option of batch reads beside one of streams is refused without knowing which of the two the read is."""
    for name, text, shown in (("endingOffsets", "latest", ""), ("endingCommitTs", "resolved", "=resolved")):
        with pytest.raises(OptionError, match=f"'{name}{shown}' is for batch reads only, and 'minOffsetsPerTrigger'"):
            parsed({name: text, "minOffsetsPerTrigger": "5"})
