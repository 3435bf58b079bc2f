"""What a read learns of messages is in one object: nothing stays on a plan, a decoder or a module."""

import pytest

from tests.support.captured import Captured
from tests.support.messages import TSO, canal, cell, debezium, open_message, open_row, simple
from ticdc_source.protocols import PROTOCOLS
from ticdc_source.protocols.base import Learned
from ticdc_source.protocols.events import TableEvents
from ticdc_source.protocols.plan import Plan
from ticdc_source.protocols.templates import Templates
from ticdc_source.schema.table_name import TableName

TABLE = TableName("test", "t")
INT32 = {"type": "int32", "optional": False, "field": "id"}
MESSAGES = {
    "open-protocol": [open_message(open_row({"u": {"id": cell(3, number, 11)}})) for number in range(9)],
    "canal-json": [
        canal("INSERT", [{"id": str(number)}], None, {"id": "int"}, {"id": 4}, _tidb={"commitTs": TSO + number})
        for number in range(9)
    ],
    "debezium": [debezium("c", None, {"id": number}, [INT32]) for number in range(9)],
    "simple": [simple("INSERT", {"id": str(number)}) for number in range(9)],
}


def events_of(protocol: str, learned: Learned | None = None) -> TableEvents:
    """Split the messages, which are rows of one table."""
    captured = Captured.of(*MESSAGES[protocol])
    (chunk,) = captured.fetch(captured.ranges()[0])
    (table_events,) = PROTOCOLS[protocol].split(chunk, learned=learned).tables.values()
    return table_events


@pytest.mark.usefixtures("native_path")
@pytest.mark.parametrize("protocol", MESSAGES)  # avro and debezium-avro have no templates
def test_two_reads_share_nothing(protocol: str) -> None:
    """With the same decoder and the same plan, another read starts without the templates of the first one."""
    decoder, plan, first, second = PROTOCOLS[protocol], Plan(()), Learned(), Learned()

    decoder.decode(events_of(protocol, first), plan, first)

    learned_first, learned_second = (learned.of_table(TABLE, plan).kept(Templates) for learned in (first, second))
    assert vars_of(learned_first) != vars_of(Templates())
    assert vars_of(learned_second) == vars_of(Templates())
    assert not second.numbers


def vars_of(layouts: object) -> dict[str, object]:
    """Return the attributes of an object with slots."""
    slots = [slot for type_ in type(layouts).__mro__ for slot in getattr(type_, "__slots__", ())]
    return {slot: getattr(layouts, slot) for slot in slots}


def test_what_was_learned_holds_for_one_plan() -> None:
    """Templates and planned columns depend on the plan: another one starts without them."""
    learned, plan = Learned(), Plan(())

    table = learned.of_table(TABLE, plan)

    assert learned.of_table(TABLE, plan) is table
    assert learned.of_table(TABLE, Plan(())) is not table
    assert learned.of_table(TABLE, plan) is not table
