"""Names of options: those misspelt, those of Spark, those without a meaning."""

import warnings

import pytest

from ticdc_source.errors import OptionError
from ticdc_source.options.kafka_client import SETTINGS
from ticdc_source.options.names import (
    applies_to,
    edit_distance,
    is_of_messages,
    refuse_misspelt,
    refuse_unknown,
    warn_of_unknown,
)
from ticdc_source.options.options import OPTIONS, Options

REQUIRED = {"kafka.bootstrap.servers": "b:9092", "subscribe": "t"}
SECRET = "hunter2"

# Options that Spark passes to a source, or that users set for all sources.
SPARKS = """
    path paths owner provider comment collation external location option.subscribe __hidden is_managed_location
    serialization.format mergeSchema recursiveFileLookup pathGlobFilter modifiedBefore modifiedAfter header inferSchema
    encoding multiLine timestampFormat dateFormat ignoreCorruptFiles ignoreMissingFiles checkpointLocation queryName
    outputMode trigger versionAsOf timestampAsOf startingVersion endingVersion readChangeFeed includeHeaders
    kafkaConsumer.pollTimeoutMs table_type
    maxFilesPerTrigger maxBytesPerTrigger maxRecordsPerFile maxFileAge latestFirst fileNameOnly cleanSource
    sourceArchiveDir samplingRatio primitivesAsString prefersDecimal allowComments allowSingleQuotes dropFieldIfAllNull
    timestampNTZFormat enableDateTimeParsingFallback locale lineSep sep delimiter quote escape comment nullValue
    emptyValue nanValue maxColumns maxCharsPerColumn unescapedQuoteHandling enforceSchema compression wholetext rowTag
    datetimeRebaseMode int96RebaseMode fetchOffset.numRetries topic headers key value url dbtable query prepareQuery
    driver user password partitionColumn lowerBound upperBound numPartitions queryTimeout fetchsize batchsize
    isolationLevel sessionInitStatement truncate createTableOptions customSchema pushDownPredicate keytab principal
    preferTimestampNTZ hint host port rampUpTimeSeconds rowsPerSecond includeTimestamp numPartitions snapshotId
    startSnapshotId endSnapshotId ignoreDeletes ignoreChanges skipChangeCommits withEventTimeOrder batchId
    schemaTrackingLocation stateFormat operatorId readRegisteredTimers snapshotStartBatchId pipelines.reset
    __internal_format serialization.format transient_lastDdlTime cloudFiles.format useStrictGlobber
"""

# The settings of Java's consumer (Kafka 4.1, ConsumerConfig) that the tables do not have.
OTHER_JAVA = """
    client.telemetry enable.metrics.push group.remote.assignor interceptor.classes metadata.recovery.strategy
    metadata.recovery.rebootstrap.trigger.ms receive.buffer.bytes send.buffer.bytes retry.backoff.max.ms
    sasl.client.callback.handler.class sasl.kerberos.kinit.cmd sasl.kerberos.min.time.before.relogin
    sasl.kerberos.ticket.renew.jitter sasl.kerberos.ticket.renew.window.factor sasl.login.callback.handler.class
    sasl.login.class sasl.login.connect.timeout.ms sasl.login.read.timeout.ms sasl.login.refresh.buffer.seconds
    sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor sasl.login.refresh.window.jitter
    sasl.login.retry.backoff.max.ms sasl.login.retry.backoff.ms sasl.oauthbearer.token.endpoint.url
    auto.commit.interval.ms exclude.internal.topics group.instance.id group.protocol heartbeat.interval.ms
    max.poll.interval.ms metric.reporters metrics.num.samples metrics.recording.level metrics.sample.window.ms
    partition.assignment.strategy sasl.oauthbearer.sub.claim.name security.providers session.timeout.ms
    ssl.enabled.protocols ssl.keymanager.algorithm ssl.protocol ssl.provider ssl.secure.random.implementation
    sasl.oauthbearer.scope.claim.name ssl.cipher.suites ssl.engine.factory.class ssl.key.password
    ssl.trustmanager.algorithm share.acknowledgement.mode auto.include.jmx.reporter
"""


def shown(given: dict[str, str]) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warn_of_unknown(Options.of({**REQUIRED, **given}))
    return [str(warning.message) for warning in caught]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("startingOffset", "startingOffsets"),
        ("PROTCOL", "protocol"),
        ("inferSchema.maxRecord", "inferSchema.maxRecords"),
        ("table", "tables"),
        ("subscirbe", "subscribe"),
        (" subscribe", "subscribe"),
        ("moed", "mode"),
        ("kafka-bootstrap.servers", "kafka.bootstrap.servers"),
        ("kafka.bootstrap.server", "kafka.bootstrap.servers"),
        ("kafka.fetch.max.byte", "kafka.fetch.max.bytes"),
        ("kafka.sasl.mechanisms", "kafka.sasl.mechanism"),
        ("security.protocol", "kafka.security.protocol"),
        ("sasl.jaas.config", "kafka.sasl.jaas.config"),
        ("bootstrap.servers", "kafka.bootstrap.servers"),
        ("startOffsets", "startingOffsets"),
        ("startOffset", "startingOffsets"),
        ("starting_offsets", "startingOffsets"),
        ("starting-offset", "startingOffsets"),
        ("kafka.startingOffsets", "startingOffsets"),
        ("startOffsetsByTimestamp", "startingOffsetsByTimestamp"),
        ("startingOffsetsTimestamp", "startingOffsetsByTimestamp"),
        ("startTime", "startingTimestamp"),
        ("startCommitTs", "startingCommitTs"),
        ("endCommit", "endingCommitTs"),
        ("endOffsets", "endingOffsets"),
        ("max_offsets_per_trigger", "maxOffsetsPerTrigger"),
        ("subscribe.pattern", "subscribePattern"),
        ("inferSchema.timeout", "inferSchema.timeoutMs"),
        ("inferSchemaMaxRecords", "inferSchema.maxRecords"),
        ("time_zone", "timeZone"),
        ("kafkaBootstrapServers", "kafka.bootstrap.servers"),
    ],
)
def test_a_misspelt_name_is_an_error(name: str, meant: str) -> None:
    """A name that is a near miss of an option's is an error, in any case, with the right name and without values."""
    for given in (name, name.lower()):  # as the user wrote it, and as Spark passes it
        with pytest.raises(OptionError) as caught:
            refuse_misspelt({**REQUIRED, given: SECRET})

        assert str(caught.value) == f"Unknown option '{given}'; did you mean '{meant}'?"


def test_no_option_is_refused_for_its_name() -> None:
    ours = [option.name.upper() for option in OPTIONS]
    kafkas = [name for setting in SETTINGS for name in setting.names]
    others = [f"kafka.{name}" for name in OTHER_JAVA.split()]

    refuse_misspelt([*ours, *kafkas, *SPARKS.split(), *others])


def test_another_unknown_name_is_a_warning() -> None:
    """It may have a meaning for another program. The warning has a similar name, if there is one, and no value."""
    assert shown({"zzz": SECRET}) == ["Unknown option 'zzz' is ignored; the command 'ticdc-source options' lists all"]
    assert shown({"inferSchema.records": SECRET}) == [
        "Unknown option 'inferschema.records' is ignored; did you mean 'inferSchema.maxRecords'?"
    ]
    assert shown({"kafka.no.such.name": SECRET}) == [
        "Unknown option 'kafka.no.such.name' is ignored; the command 'ticdc-source options' lists all"
    ]
    assert shown({"kafka.max.bytes": SECRET})[0].endswith("is ignored; did you mean 'kafka.fetch.max.bytes'?")
    with pytest.raises(OptionError, match="Unknown option 'zzz'") as caught:
        shown({"zzz": SECRET, "strictOptions": "true"})
    assert SECRET not in str(caught.value)


def test_what_spark_adds_itself_is_never_an_error() -> None:
    """The properties of CREATE TABLE are silent, and several paths a warning, also with `strictOptions`."""
    assert shown({"owner": "root", "provider": "ticdc", "option.subscribe": "t", "strictOptions": "true"}) == []
    assert shown({"paths": "x", "strictOptions": "true"}) == ["Option 'paths' has no effect: load() takes one path"]


def test_settings_of_javas_client_in_a_file_of_properties_are_not_refused() -> None:
    """Where unknown options are errors, such a setting is not; a read warns that it is ignored."""
    refuse_unknown(["kafka.session.timeout.ms", "kafka.ssl.protocol"])
    with pytest.raises(OptionError, match="did you mean 'startingOffsets'"):
        refuse_unknown(["startingOffset"])


LINES = {
    "terminator": "|",
    "csv.delimiter": "|",
    "csv.quote": "|",
    "csv.null": "|",
    "csv.includeCommitTs": "true",
    "csv.outputOldValue": "true",
    "csv.binaryEncodingMethod": "hex",
}


@pytest.mark.parametrize("name", ["tableDDL", "inferSchema.maxRecords", *LINES])
def test_lag_does_not_take_what_only_columns_or_files_need(name: str) -> None:
    """They say how messages are parsed, and `lag` reads commit-ts from topics only."""
    assert not applies_to("lag", name)
    assert applies_to("tail", name) == (name not in LINES)
    assert is_of_messages(name)
    assert is_of_messages("protocol")
    assert not is_of_messages("tables")


@pytest.mark.parametrize("name", LINES)
def test_topics_refuse_options_of_files(name: str) -> None:
    """How lines of files are cut has no effect on topics; with `path`, and for frames, it is taken."""
    given = {name: LINES[name]}
    with pytest.raises(OptionError, match=f"'{name}' is for storage sink files"):
        Options.of({**REQUIRED, **given})
    Options.of({"path": "/x", **given})
    Options.of(given, from_kafka=False)


@pytest.mark.parametrize(
    ("first", "second", "distance"),
    [("", "abc", 3), ("mode", "mode", 0), ("moed", "mode", 1), ("tabel", "tables", 2), ("kitten", "sitting", 3)],
)
def test_swapped_neighbours_are_one_edit(first: str, second: str, distance: int) -> None:
    assert edit_distance(first, second) == edit_distance(second, first) == distance
