"""The house stands as docs/design/0001 draws it: read from the imports of every module, not from good intentions."""

import ast
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "ticdc_source"
LONGEST = 350

# Each floor from its foundation upwards: a room imports rooms of lower floors, and rooms of its own floor that stand
# above it in this list. A room is a module or a package; workshops (floor 2) do not import one another at all.
FLOORS: tuple[dict[str, str], ...] = (
    {
        "errors": "the tree of errors",
        "option_values": "parsers of option texts",
        "option_table": "the table of options",
        "options": "the options of one read",
        "topics": "which topics to read",
        "bounds": "where a read starts and ends",
        "offsets": "arithmetic of offset ranges",
        "credentials": "secrets, SASL logins and TLS stores, as data",
        "client_settings": "the table of Kafka client settings",
        "client_config": "kafka.* options as settings of the client",
        "binaries": "bytes of many records in one array",
        "events": "what travels between the stages",
        "types": "the table of TiDB types",
        "type_merging": "the widest type of several versions",
        "schema": "columns and tables, as messages describe them",
        "declared": "what DDL says of a column, held against its messages",
        "tables": "which tables the option `tables` names",
        "snappy_size": "what a snappy block says that it becomes",
        "commit_range": "which commit-ts a read wants",
        "destructive_ddl": "DDL that removes rows without delete events",
        "hints": "types in Spark's DDL",
        "metadata": "the table of metadata columns",
        "repeated": "arrays that are alike in every chunk",
    },
    {
        "layout": "what each field of the read schema is",
        "kernels": "a column of wire cells → an Arrow array",
        "assembly": "columns → a record batch of the read schema",
        "joining": "small record batches → few large ones",
    },
    {
        "kafka": "offset look-ups, and ranges → chunks",
        "protocols": "chunks → events → columns, one module a wire",
        "table_ddl": "DDL texts → column types",
    },
    {
        "metrics": "what a read counts",
        "wanted": "what a read wants, and the rows of its one table",
        "row_events": "row images folded into events",
        "gathering": "chunks of which little is wanted, laid together",
        "output_formats": "what each outputFormat makes of a chunk",
        "reading": "the spine: split, decode, assemble",
        "streaming": "where a micro-batch ends",
        "ddl_types": "what DDL adds to a sample",
        "inference": "a sample → a table schema",
        "read_schema": "a table schema → the columns that Spark is told of",
        "resolved": "up to which commit-ts everything is there",
        "planning": "the read schema → what a worker needs",
    },
    {
        "spark_schema": "Arrow schemas to Spark's and back",
        "partitions": "input partitions, and how a worker reads one",
        "knowledge": "what is known of messages before they are read",
        "batch_reader": "spark.read",
        "stream_reader": "spark.readStream",
        "source": "the data source",
    },
)
WORKSHOPS = 2

# Inside protocols/: what every protocol may use, in the order of its imports; and what is one protocol's own.
PROTOCOL_BENCH = (
    "json_text",
    "shapes",
    "compression",
    "large_messages",
    "stencils",
    "peeking",
    "plan",
    "image_columns",
    "base",
    "images",
    "documents",
    "samples",
)
PROTOCOL_PARTS = {
    "action_types": "open_splitting",
    "canal_columns": "canal_json",
    "canal_shapes": "canal_columns",
    "debezium_columns": "debezium",
    "debezium_native": "debezium_types",
    "debezium_skim": "debezium_columns",
    "debezium_types": "debezium",
    "open_frames": "open_splitting",
    "open_skim": "open_protocol",
    "open_splitting": "open_protocol",
    "release_bugs": "open_protocol",
}
PROTOCOL_DOOR = "__init__"

# The rooms that may import what is not ours, beside Python's own library and pyarrow, which all may.
OUTSIDERS: dict[str, frozenset[str]] = {
    "kafka": frozenset({"kafka"}),
    "cramjam": frozenset({"protocols"}),
    "fsspec": frozenset({"protocols"}),
    "numpy": frozenset({"kafka"}),
    "orjson": frozenset({"protocols"}),
    "sqlglot": frozenset({"table_ddl"}),
    "pyspark": frozenset(FLOORS[-1]),
}
EVERYBODYS = frozenset({"pyarrow", *sys.stdlib_module_names})

NOTHING_NAMES = frozenset({"utils", "util", "common", "helpers", "helper", "misc"})
NOTHING_SUFFIXES = ("Manager", "Handler", "Processor")

Sources = Mapping[str, str]


def modules() -> dict[str, str]:
    """Read the package: source text by dotted module name; a package is its `__init__`."""
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts): path.read_text(encoding="utf-8")
        for path in sorted((ROOT / PACKAGE).rglob("*.py"))
    }


@cache
def parsed(source: str) -> ast.Module:
    """Parse a module, once."""
    return ast.parse(source)


def imports(source: str) -> Iterator[str]:
    """Yield the dotted names that a module imports, wherever in it; `from a import b` gives both `a` and `a.b`."""
    for node in ast.walk(parsed(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = "." * node.level + (node.module or "")
            yield start
            yield from (f"{start}.{alias.name}" for alias in node.names)


def room(module: str) -> str:
    """Return the module's or package's name right below ours; "" for what is not ours or is the package itself."""
    parts = module.split(".")
    return parts[1] if parts[0] == PACKAGE and len(parts) > 1 and parts[1] != "__init__" else ""


def floor_of(name: str) -> int | None:
    """Return the floor of a room, None for a room that has none."""
    return next((number for number, rooms in enumerate(FLOORS) if name in rooms), None)


def our_imports(module: str, sources: Sources) -> set[str]:
    """Return the modules of ours that a module imports; a package stands as its `__init__`."""
    found = set()
    for name in imports(sources[module]):
        for known in (name, f"{name}.__init__"):
            if known in sources:
                found.add(known)
    return found


def on_a_floor(sources: Sources) -> Iterator[str]:
    """Say which modules are on no floor, and which rooms are not there."""
    rooms = {room(module) for module in sources} - {""}
    for name in sorted(rooms):
        if floor_of(name) is None:
            yield f"{name} is on no floor: give it one in FLOORS, with a sentence, and in docs/design/0001"
    for number, there in enumerate(FLOORS):
        for name in there:
            if name not in rooms:
                yield f"{name} is on floor {number} and does not exist"


def downwards(sources: Sources) -> Iterator[str]:
    """Say which imports go up, or sideways where that is not allowed."""
    for module in sources:
        here = room(module)
        floor = floor_of(here)
        for target in sorted(our_imports(module, sources)):
            there = room(target)
            other = floor_of(there)
            if here == there or not there:
                continue
            if floor is None or other is None:
                if not here:
                    yield f"{module} imports {target}: the package itself imports nothing, so that it costs nothing"
                continue
            if other > floor:
                yield f"{module} (floor {floor}) imports {target} (floor {other}): imports go down the floors only"
            elif other == floor == WORKSHOPS:
                yield f"{module} imports {target}: workshops do not import one another"
            elif other == floor and list(FLOORS[floor]).index(there) > list(FLOORS[floor]).index(here):
                yield f"{module} imports {target}, which stands after it on floor {floor}: that way lies a circle"


def between_protocols(sources: Sources) -> Iterator[str]:
    """Say which protocols know of one another: they share the bench, and nothing else."""
    prefix = f"{PACKAGE}.protocols."
    for module in sources:
        if not module.startswith(prefix) or module == prefix + PROTOCOL_DOOR:
            continue
        here = module.removeprefix(prefix)
        for target in sorted(our_imports(module, sources)):
            there = target.removeprefix(prefix)
            if not target.startswith(prefix) or there == here:
                continue
            if there in PROTOCOL_BENCH:
                if here in PROTOCOL_BENCH and PROTOCOL_BENCH.index(there) > PROTOCOL_BENCH.index(here):
                    yield f"{module} imports {target}, which stands after it on the protocols' bench"
            elif PROTOCOL_PARTS.get(there) != here:
                yield f"{module} imports {target}: a protocol knows only the bench ({', '.join(PROTOCOL_BENCH)})"


def outside(sources: Sources) -> Iterator[str]:
    """Say which modules import something of others that is not for them, and which import by dots."""
    for module, source in sources.items():
        for name in sorted(set(imports(source))):
            top = name.split(".")[0]
            if name.startswith("."):
                yield f"{module} imports {name}: write the whole name"
            elif top in EVERYBODYS or top == PACKAGE:
                continue
            elif top not in OUTSIDERS:
                yield f"{module} imports {name}, which no floor may import"
            elif room(module) not in OUTSIDERS[top]:
                yield f"{module} imports {name}, which is only for {', '.join(sorted(OUTSIDERS[top]))}"


def sizes_and_names(sources: Sources) -> Iterator[str]:
    """Say which files are two rooms in one, and which names say nothing."""
    for module, source in sources.items():
        lines = len(source.splitlines())
        if lines > LONGEST:
            yield f"{module} has {lines} lines: past {LONGEST} it is two rooms in one"
        if set(module.split(".")) & NOTHING_NAMES:
            yield f"{module}: name a module for what it does; utils, common and helpers say nothing"
        for node in ast.walk(parsed(source)):
            if isinstance(node, ast.ClassDef) and node.name.endswith(NOTHING_SUFFIXES):
                yield f"{module}.{node.name}: Manager, Handler and Processor say nothing of what a class is"


GUARDS = (on_a_floor, downwards, between_protocols, outside, sizes_and_names)


def violations(sources: Sources) -> list[str]:
    """Return what is not as the house wants it, a sentence each."""
    return [sentence for guard in GUARDS for sentence in guard(sources)]


def test_the_house_stands() -> None:
    """Imports go down the floors, outsiders are where they belong, rooms are small and named for what they do."""
    found = violations(modules())

    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("module", "source", "sentence"),
    [
        ("types", "from ticdc_source.kernels import base", "floor 0) imports ticdc_source.kernels"),
        ("kernels.base", "import ticdc_source.reading", "floor 1) imports ticdc_source.reading (floor 3)"),
        ("kafka.fetch", "from ticdc_source import source", "floor 2) imports ticdc_source.source (floor 4)"),
        ("kafka.fetch", "from ticdc_source.protocols import PROTOCOLS", "workshops do not import one another"),
        ("protocols.debezium", "import ticdc_source.kafka.client", "workshops do not import one another"),
        ("errors", "def late():\n    import ticdc_source.types", "which stands after it on floor 0"),
        ("__init__", "from ticdc_source import errors", "the package itself imports nothing"),
        ("protocols.debezium", "from ticdc_source.protocols import canal_json", "knows only the bench"),
        ("protocols.open_protocol", "from ticdc_source.protocols.debezium_types import BIT", "knows only the bench"),
        ("protocols.base", "import ticdc_source.protocols.canal_json", "knows only the bench"),
        ("protocols.plan", "import ticdc_source.protocols.base", "stands after it on the protocols' bench"),
        ("inference", "import kafka.errors", "imports kafka.errors, which is only for kafka"),
        ("reading", "from orjson import loads", "imports orjson, which is only for protocols"),
        (
            "kernels.base",
            "from pyspark.sql import types",
            "imports pyspark.sql, which is only for batch_reader, knowledge",
        ),
        ("source", "import pandas as pd", "imports pandas, which no floor may import"),
        ("source", "from . import errors", "write the whole name"),
        ("cellar", "", "cellar is on no floor"),
        ("kernels.utils", "", "utils, common and helpers say nothing"),
        ("reading", "class TrayHandler:\n    pass", "reading.TrayHandler: Manager, Handler and Processor"),
        ("types", "x = 1\n" * (LONGEST + 1), "has 351 lines"),
    ],
)
def test_the_guard_sees(module: str, source: str, sentence: str) -> None:
    """Each law is broken once here, and the guard says so: it does not pass because it is blind."""
    sources = {**modules(), f"{PACKAGE}.{module}": source}

    assert any(sentence in found for found in violations(sources)), violations(sources)


def test_a_room_that_is_gone_is_missed() -> None:
    """The drawing and the house have the same rooms."""
    sources = {module: source for module, source in modules().items() if module != f"{PACKAGE}.hints"}

    assert "hints is on floor 0 and does not exist" in violations(sources)


_BLOCKED_IMPORT = """
import importlib, sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in BLOCKED:
            raise ModuleNotFoundError(f"{name} is blocked", name=name)

BLOCKED = set(sys.argv[1].split(","))
sys.meta_path.insert(0, Blocker())
for name in BLOCKED:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError:
        continue
    raise SystemExit(f"{name} is not blocked")
for module in sys.argv[2:]:
    importlib.import_module(module)
"""


def import_without(blocked: str, names: list[str]) -> subprocess.CompletedProcess[str]:
    """Import modules in a new Python that does not find some packages."""
    command = [sys.executable, "-W", "error", "-c", _BLOCKED_IMPORT, blocked, *names]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def on_floors(numbers: range) -> list[str]:
    """Return the names of all modules on some floors."""
    return [module.removesuffix(".__init__") for module in modules() if floor_of(room(module)) in numbers]


def test_the_core_needs_neither_spark_nor_kafka() -> None:
    """Floors 0 to 3, the kafka package aside, import where there is no PySpark, no kafka-python and no JVM."""
    core = [name for name in on_floors(range(4)) if room(name) != "kafka"]

    done = import_without("pyspark,py4j,kafka", core)

    assert len(core) > 20
    assert done.returncode == 0, done.stderr


def test_the_ground_needs_only_arrow() -> None:
    """Floors 0 and 1 import where pyarrow is all there is beside Python's own library."""
    done = import_without("pyspark,py4j,kafka,orjson,pandas", on_floors(range(2)))

    assert done.returncode == 0, done.stderr


def test_the_guard_against_imports_works() -> None:
    """The same check fails for the room that does need kafka-python."""
    done = import_without("kafka", ["ticdc_source.kafka"])

    assert done.returncode != 0
    assert "kafka is blocked" in done.stderr or "kafka.errors is blocked" in done.stderr
