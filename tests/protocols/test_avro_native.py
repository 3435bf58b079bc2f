"""The native path of avro has the results of the general path."""

import random
import re
from dataclasses import replace

import pyarrow as pa
import pytest

from tests.pipeline.test_equivalence import outcome, outcome_of, plan_for
from tests.support.captured import Captured, Record, load, random_sizes, single, whole
from tests.support.corpus import scenarios
from tests.support.mutations import MUTATIONS
from tests.support.truth import tables_with_rows
from ticdc_source.errors import TiCDCSourceError
from ticdc_source.protocols import decoder_of
from ticdc_source.protocols.base import Decoded, Learned
from ticdc_source.protocols.decoding import Decoder
from ticdc_source.protocols.plan import Plan
from ticdc_source.schema.model import ReadField

pytestmark = pytest.mark.filterwarnings("ignore:The messages of .*:UserWarning")

SEED = 20261126
FIRST = ["avro.include-before-value.tidb-extension"]
OTHERS = [name for name in scenarios() if name.startswith("avro.") and name not in {*FIRST, "avro.dotted-topic"}]
# The extension, watermarks and checksums are other fields of the header: the rows have the schemas of these.
SCHEMAS = {"avro.default", "avro.default.invalid-utf8", "avro.glue.tidb-extension", "avro.string-modes",
           "avro.include-before-value.watermark.string-modes"}  # fmt: skip
TARGETS = [pa.string(), pa.binary(), pa.int16(), pa.int64(), pa.decimal128(38, 6), pa.float64(), pa.float32()]


@pytest.mark.parametrize(
    "scenario",
    [
        *FIRST,
        *(
            pytest.param(name, marks=(pytest.mark.slow if name in SCHEMAS else pytest.mark.long)("a table four times"))
            for name in OTHERS
        ),
    ],
)
def test_the_native_path_has_the_rows_of_the_general_path(scenario: str) -> None:
    """Every table has the rows of the general path on the native path, however chunks are cut."""
    captured = load(scenario)

    for database, table in tables_with_rows(captured):
        records = captured.only(database, table)
        given = {"tables": f"`{database}`.`{table}`", "includeMetadata": "all"}
        schema = records.schema(**given)
        for sizes in (whole, random_sizes(SEED), single):
            expected = outcome(records, schema, sizes, native_path=False, **given)
            assert isinstance(expected, pa.Table)
            assert outcome(records, schema, sizes, native_path=True, **given) == expected


def decoded(decoder: Decoder, records: list[Record], plan: Plan, learned: Learned | None) -> list[Decoded] | str:
    """Decode records as one chunk; return what is decoded of each table, or the error's text."""
    captured = Captured({}, {0: records})
    (chunk,) = captured.fetch(captured.ranges()[0])
    tables = list(decoder.split(chunk).tables.values())
    try:
        return [decoder.decode(events, plan, learned) for events in tables]
    except TiCDCSourceError as error:
        return str(error)


def retyped(plan: Plan, chooser: random.Random) -> Plan:
    fields = [ReadField(each.name, chooser.choice(TARGETS)) if chooser.random() < 0.3 else each for each in plan.fields]
    return replace(plan, fields=tuple(fields))


@pytest.mark.usefixtures("native_path")
@pytest.mark.parametrize("scenario", ["avro.include-before-value.tidb-extension", "avro.string-modes"])
@pytest.mark.parametrize("rounds", [1, pytest.param(8, marks=pytest.mark.slow("every table, eight times"))])
def test_damaged_rows_have_the_results_of_the_general_path(scenario: str, rounds: int) -> None:
    """Rows with changed bytes, read as whatever types, have the values and failures of the general path."""
    captured = load(scenario)
    decoder = decoder_of("avro", captured.options())
    chooser = random.Random(f"{SEED} {scenario}")
    natively = failures = 0

    for database, table in tables_with_rows(captured):
        own = captured.only(database, table)
        records = [record for each in own.partitions.values() for record in each]
        whole_plan = plan_for(own, tables=f"`{database}`.`{table}`", onSchemaDrift="rescue")
        for _ in range(rounds):
            plan, learned = retyped(whole_plan, chooser), Learned()
            decoded(decoder, records, plan, learned)
            some = [damaged(record, chooser) if chooser.random() < 0.3 else record for record in records]
            general = decoded(decoder, some, replace(plan, native_path=False), None)
            found = decoded(decoder, some, plan, learned)
            if isinstance(found, str) or isinstance(general, str):
                # A column that cannot be read so: the first row that shows it may be another one.
                assert without_offset(found) == without_offset(general)
                continue
            assert list(map(outcome_of, found)) == list(map(outcome_of, general)), (database, table, some)
            natively += sum(len(each.change_types) - each.parsed for each in found)
            failures += sum(len(each.failures) for each in found)

    assert natively > 100 * rounds
    assert failures > 10 * rounds


def without_offset(text: list[Decoded] | str) -> str:
    return re.sub(r"offset=\d+", "", str(text))


def damaged(record: Record, chooser: random.Random) -> Record:
    value = record.value or b""
    return Record(record.key, value[:5] + chooser.choice(MUTATIONS)(value[5:], chooser) if len(value) > 9 else value)
