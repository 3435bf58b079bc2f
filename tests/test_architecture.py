"""Imports follow the layers that docs/design/0001 draws: read from the imports of every module."""

import ast
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

from ticdc_source.protocols import DECODERS
from ticdc_source.protocols.decoding import Decoder

ROOT = Path(__file__).resolve().parents[1]
PACKAGE, COPY = "ticdc_source", "ticdc_lakehouse"
FOLDERS = {PACKAGE: ROOT, COPY: ROOT / "lakehouse"}
# What the copy may import of the connector: public names, errors, and what is made for those who build on it.
WALL = frozenset({f"{PACKAGE}.__init__", f"{PACKAGE}.errors", f"{PACKAGE}.developer_api"})
EMPTY_CONTAINERS = frozenset({"{}", "[]", "dict()", "list()", "set()"})
CLIENT_LIBRARY = f"{PACKAGE}.sources.kafka.kafka_python"
# What only the sources name.
KINDS_OF_SOURCES = frozenset(
    {"FilePlanner", "FileSource", "KafkaSource", "SnapshotFirstSource", "SnapshotSource", "TopicPlanner"}
)
ASK_FOR_A_SOURCE = frozenset({"path", "is_snapshot", "has_initial_snapshot", "snapshot"})  # attributes of options
# Calls that read the wall clock, which somebody may set while a query runs: deadlines and intervals are measured with
# `time.monotonic`.
WALL_CLOCK = frozenset({
    *("time.time", "time.time_ns", "time.localtime", "time.gmtime", "time.ctime"),
    *("datetime.now", "datetime.utcnow", "datetime.today", "date.today"),
})  # fmt: skip
# Who may read it, with the reason.
MAY_READ_THE_WALL_CLOCK = {
    f"{PACKAGE}.inspection.inspect.inspect": "lag is how far a watermark is behind the clock",
    f"{PACKAGE}.inspection.doctor.diagnose": "certificates expire by the clock, and records are of the past",
    f"{COPY}.syncs.upkeep._now_ms": "rounds are due by the clock, also after a restart",
    f"{COPY}.targets.iceberg.forget_versions": "a catalog has the times of commits by the clock",
    f"{COPY}.syncs.upkeep._one": "deleted rows are forgotten by the clock",
    f"{COPY}.syncs.lease.__init__": "processes on two machines have no other clock in common",
    f"{COPY}.syncs.checkpoint.newest_ts": "what was lost before a sync began has an earlier commit-ts",
    f"{PACKAGE}.inspection.topic_lag.__init__": "lag is how far commits and watermarks are behind the clock",
    f"{PACKAGE}.inspection.listener.progress_listener": "a lag is the age of a commit time, never below 0",
    f"{PACKAGE}.spark.readers._task_facts": "metrics say when a task ended",
    f"{COPY}.cli.sync._show_status": "lag is how far the resolved ts is behind the clock",
    f"{COPY}.syncs.reports.exported": "lag is how far the resolved ts is behind the clock",
    f"{COPY}.syncs.status.now_text": "people ask as of when a status is, and since when a table has been set aside",
}

# The layers, from the top down. A module imports modules of its own folder, and of lower layers. Siblings of one layer
# do not import one another.
LAYERS: tuple[dict[str, str], ...] = (
    {f"{COPY}.cli": "the command ticdc-lakehouse"},
    {f"{COPY}.syncs": "a whole database in Delta or Iceberg, in one stream; its past, its views and its audits"},
    {f"{COPY}.audits": "one table in Delta or Iceberg compared with TiDB, and repaired"},
    {f"{COPY}.targets": "changes → one table in Delta or Iceberg"},
    {f"{COPY}.tidb": "the queries of the copy to TiDB", f"{COPY}.errors": "errors of targets"},
    {"developer_api": "the API for packages that build on this one"},
    {"cli": "the command ticdc-source"},
    {"spark": "the data source and its readers; frames of records"},
    {"inspection": "what a topic holds, whether it can be reached, and how far a stream is; without Spark"},
    {"planning": "once per query, without Spark: options → offset ranges → sample → read schema"},
    {"pipeline": "chunks → record batches of the read schema"},
    {"protocols": "chunks → events → columns, one folder a wire format"},
    {"sources": "where records come from: which ranges there are, and a range → chunks"},
    {"kernels": "a column of wire values → an Arrow array", "options": "what the user typed, without I/O"},
    {"schema": "what TiDB has: tables, columns, types, DDL, TSO"},
    {"errors": "the tree of errors, and warnings"},
)
NAMES = [name for layer in LAYERS for name in layer]

# Which folders may import what is not ours, beside Python's own library and pyarrow, which all may.
OUTSIDERS: dict[str, frozenset[str]] = {
    "aws_msk_iam_sasl_signer": frozenset({"sources.kafka.tokens"}),
    "boto3": frozenset({"sources.schema_registry"}),
    "botocore": frozenset({"sources.kafka.tokens", "sources.schema_registry"}),
    "cryptography": frozenset({"sources.tls"}),
    "crc32c": frozenset({"sources.kafka.record_batches"}),
    "kafka": frozenset({"sources.kafka.kafka_python"}),
    "cramjam": frozenset({"protocols"}),
    "fastavro": frozenset({"protocols"}),
    "fsspec": frozenset({"protocols", "sources.storage"}),
    "orjson": frozenset({"protocols"}),
    "prometheus_client": frozenset({"inspection.progress"}),
    "pymysql": frozenset({"sources.tidb.client"}),
    "pyspark": frozenset(
        {
            "spark",
            "inspection.listener",
            "inspection.executors",
            *(f"{COPY}.{each}" for each in ("syncs", "audits", "targets", "tidb")),
        }
    ),
    "tomli": frozenset({f"{COPY}.syncs.sync_toml"}),
}
CLI = frozenset({"cli", "inspection"})
EVERYBODYS = frozenset({"pyarrow", *sys.stdlib_module_names})
# Folders in which each wire format has a module or a folder; one does not know another.
APART = {"protocols": frozenset(decoder.__module__.split(".")[2] for decoder in DECODERS)}
# The name of each wire format and of its class in any case, by folder: `canal-json`, `canal_json`, `CanalJSON`. What is
# a word for something else too is a name in backticks, in a path and as the class.
_WORDS = frozenset({"simple", "avro", "csv"})


def names_of(decoder: type[Decoder]) -> tuple[str, re.RegexFlag]:
    name = decoder.facts.name
    if name in _WORDS:
        return rf"`{name}`|protocols[./]{name}\b|\b{decoder.__name__}\(", re.RegexFlag(0)
    return "|".join({re.sub("[-_ ]", "[-_ ]?", one) for one in (name, decoder.__name__)}), re.IGNORECASE


WIRE_FORMATS = [(decoder.__module__.split(".")[2], re.compile(*names_of(decoder))) for decoder in DECODERS]
REGISTRY = f"{PACKAGE}.protocols.__init__"
# Modules beside the registry and its own folder that may name a wire format, each with the reason.
MAY_NAME_A_WIRE_FORMAT: dict[str, str] = {
    f"{PACKAGE}.options.table": "debezium.binaryHandlingMode has the changefeed's name of the setting"
}

# The one module that gives Spark a statement: everybody else calls its `run_sql`.
RUNS_SQL = f"{COPY}.targets.sessions"

Sources = Mapping[str, str]
Guard = Callable[[Sources], Iterator[str]]


@cache
def modules() -> Sources:
    """Read both packages: source text by dotted module name; a package is its `__init__`."""
    return {
        ".".join(path.relative_to(place).with_suffix("").parts): path.read_text(encoding="utf-8")
        for package, place in FOLDERS.items()
        for path in sorted((place / package).rglob("*.py"))
    }


@cache
def parsed(source: str) -> ast.Module:
    """Parse a module, once."""
    return ast.parse(source)


@cache
def nodes(source: str) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(parsed(source)))


@cache
def imports(source: str) -> tuple[str, ...]:
    """Return the dotted names that a module imports, wherever in it; `from a import b` gives both `a` and `a.b`."""
    names: list[str] = []
    for node in nodes(source):
        if isinstance(node, ast.Import):
            names += (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = "." * node.level + (node.module or "")
            names += (start, *(f"{start}.{alias.name}" for alias in node.names))
    return tuple(names)


def folder(module: str) -> str:
    """Return the name right below the package, with that of the copy; "" for what is not ours, or a package itself."""
    parts = module.split(".")
    if parts[0] not in FOLDERS or len(parts) == 1 or parts[1] == "__init__":
        return ""
    name = "cli" if parts[1] == "__main__" else parts[1]
    return name if parts[0] == PACKAGE else f"{COPY}.{name}"


def layer_of(name: str) -> int | None:
    """Return the number of a folder's layer, 0 at the top; None for a folder that has none."""
    return next((number for number, names in enumerate(LAYERS) if name in names), None)


def our_imports(module: str, sources: Sources) -> set[str]:
    """Return the modules of ours that a module imports; a package stands as its `__init__`."""
    named = set(imports(sources[module]))
    return {found for name in named for found in (name, f"{name}.__init__") if found in sources} - {module}


def in_a_layer(sources: Sources) -> Iterator[str]:
    """Report folders without a layer, and layers without their folder."""
    there = {folder(module) for module in sources} - {""}
    yield from (f"{name} is in no layer: add it to LAYERS and to docs/design/0001" for name in there - set(NAMES))
    yield from (f"{name} is a layer and does not exist" for name in NAMES if name not in there)


def downwards(sources: Sources) -> Iterator[str]:
    """Report imports that go up, or sideways."""
    for module in sources:
        here = folder(module)
        layer = layer_of(here)
        for target in sorted(our_imports(module, sources)):
            there = folder(target)
            other = layer_of(there)
            if here == there or not there:
                continue
            if not here:
                yield f"{module} imports {target}: the package itself imports nothing, so that it costs nothing"
            elif layer is None or other is None:
                continue
            elif other < layer:
                yield f"{module} imports {target}: {there} lies above {here}"
            elif other == layer:
                yield f"{module} imports {target}: {there} and {here} are siblings"


def walled(sources: Sources) -> Iterator[str]:
    """Report what the copy imports of the connector beyond the wall, and what the connector knows of the copy."""
    for module, source in sources.items():
        of_copy = module.startswith(f"{COPY}.")
        for target in sorted(our_imports(module, sources)):
            if of_copy and target.startswith(f"{PACKAGE}.") and target not in WALL:
                yield f"{module} imports {target}: the copy imports public names and developer_api, nothing deeper"
        if not of_copy and "lakehouse" in source.lower():
            yield f"{module} knows the word lakehouse: the connector knows nothing of the copy"


def apart(sources: Sources) -> Iterator[str]:
    """Report wire formats that know of one another, and what they share that knows of one of them."""
    for parent, names in APART.items():
        start = f"{PACKAGE}.{parent}."
        for module in sources:
            if not module.startswith(start) or module == f"{start}__init__":
                continue
            here = module.removeprefix(start).split(".")[0]
            for target in sorted(our_imports(module, sources)):
                there = target.removeprefix(start).split(".")[0]
                if target.startswith(start) and there in names and there != here:
                    yield f"{module} imports {target}: only {start}__init__ knows every wire format"


def unnamed(sources: Sources) -> Iterator[str]:
    """Report names of wire formats outside their own folder and the registry."""
    for module, source in sources.items():
        found = [
            (source.count("\n", 0, match.start()) + 1, match[0])
            for wire_folder, names in WIRE_FORMATS
            if module != REGISTRY and not f"{module}.".startswith(f"{PACKAGE}.protocols.{wire_folder}.")
            for match in names.finditer(source)
        ]
        if module not in MAY_NAME_A_WIRE_FORMAT:
            for number, name in found:
                yield f"{module}, line {number} names {name}: only its folder and {REGISTRY} may"
        elif not found:
            yield f"{module} names no wire format any more: take it out of MAY_NAME_A_WIRE_FORMAT"


def circles(sources: Sources) -> Iterator[str]:
    """Report modules that import one another, through however many others."""
    graph = {module: our_imports(module, sources) for module in sources}
    done: set[str] = set()

    def visit(module: str, path: tuple[str, ...]) -> Iterator[str]:
        if module in path:
            yield " imports ".join([*path[path.index(module) :], module])
        elif module not in done:
            for target in sorted(graph[module]):
                yield from visit(target, (*path, module))
            done.add(module)

    for module in sorted(graph):
        yield from visit(module, ())


def outside(sources: Sources) -> Iterator[str]:
    """Report imports of others' packages by folders that may not, and relative imports."""
    for module, source in sources.items():
        for name in sorted(set(imports(source))):
            top = name.split(".")[0]
            if name.startswith("."):
                yield f"{module} imports {name}: write the whole name"
            elif top in EVERYBODYS or top in FOLDERS:
                continue
            elif top not in OUTSIDERS:
                yield f"{module} imports {name}, which no layer may import"
            elif not any(f"{module}.".startswith((f"{PACKAGE}.{path}.", f"{path}.")) for path in OUTSIDERS[top]):
                yield f"{module} imports {name}, which is only for {', '.join(sorted(OUTSIDERS[top]))}"


def globals_that_change(sources: Sources) -> Iterator[str]:
    """Report empty containers at the top of a module: something fills them later, and no read owns that."""
    for module, source in sources.items():
        for node in parsed(source).body:
            value = node.value if isinstance(node, (ast.Assign, ast.AnnAssign)) else None
            if value is not None and ast.unparse(value) in EMPTY_CONTAINERS:
                yield f"{module}, line {node.lineno}: a module keeps no state; let an object that a read owns keep it"


def sql_as_written(sources: Sources) -> Iterator[str]:
    """Report statements that Spark gets without `run_sql`: it would put the environment into names of a topic."""
    for module, source in sources.items():
        for node in nodes(source) if module != RUNS_SQL and ".sql" in source else ():
            if isinstance(node, ast.Attribute) and node.attr == "sql" and ast.unparse(node.value).endswith("spark"):
                yield f"{module}, line {node.lineno}: call run_sql of {RUNS_SQL}, and not {ast.unparse(node)}"


def one_way_in(sources: Sources) -> Iterator[str]:
    """Report modules that reach past `connect` into the folder of a Kafka client library."""
    for module in sources:
        for target in sorted(our_imports(module, sources)):
            inside = target.startswith(f"{CLIENT_LIBRARY}.") and target != f"{CLIENT_LIBRARY}.connect"
            if inside and not target.endswith("__init__") and not module.startswith(CLIENT_LIBRARY):
                yield f"{module} imports {target}: only {CLIENT_LIBRARY}.connect is for others"


def one_place_chooses(sources: Sources) -> Iterator[str]:
    """Report modules outside the sources, and the parsing of options, that ask which source a read has."""
    for module, source in sources.items():
        if folder(module) in {"sources", "options"}:
            continue
        for name in imports(source):
            if name.startswith(f"{PACKAGE}.sources.") and name.rpartition(".")[2] in KINDS_OF_SOURCES:
                yield f"{module} imports {name}: every source has one contract, {PACKAGE}.sources.record_source"
        for node in nodes(source):
            if not isinstance(node, ast.Attribute) or node.attr not in ASK_FOR_A_SOURCE:
                continue
            if ast.unparse(node.value).endswith("options"):
                yield f"{module}, line {node.lineno} asks which source it has: only {PACKAGE}.sources.choose may"


@cache
def wall_clock_readers(source: str) -> tuple[str, ...]:
    """Return the name of the function around each use of the wall clock; "" at the top of the module."""
    found = []
    waiting: list[tuple[ast.AST, str]] = [(parsed(source), "")]
    while waiting:
        node, name = waiting.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            name = node.name
        elif isinstance(node, ast.Attribute):
            owner = node.value
            last = owner.attr if isinstance(owner, ast.Attribute) else owner.id if isinstance(owner, ast.Name) else ""
            found += [name] if f"{last}.{node.attr}" in WALL_CLOCK else []
        elif isinstance(node, ast.ImportFrom):
            found += [name for one in node.names if f"{node.module}.{one.name}" in WALL_CLOCK]
        waiting += ((child, name) for child in ast.iter_child_nodes(node))
    return tuple(found)


def wall_clock(sources: Sources) -> Iterator[str]:
    """Report uses of the wall clock, beside those with a reason in MAY_READ_THE_WALL_CLOCK."""
    found = {f"{module}.{name}" for module, source in sources.items() for name in wall_clock_readers(source)}
    for name in sorted(found - MAY_READ_THE_WALL_CLOCK.keys()):
        yield f"{name} reads the wall clock, which jumps: measure time with time.monotonic"
    for name in sorted(MAY_READ_THE_WALL_CLOCK.keys() - found):
        yield f"{name} does not read the wall clock any more: take it out of MAY_READ_THE_WALL_CLOCK"


GUARDS = (
    in_a_layer,
    downwards,
    walled,
    apart,
    unnamed,
    circles,
    outside,
    globals_that_change,
    sql_as_written,
    one_way_in,
    one_place_chooses,
    wall_clock,
)


def test_imports_follow_the_layers() -> None:
    """Imports go down the layers, and each outside package has its folder."""
    broken = [sentence for guard in GUARDS for sentence in guard(modules())]

    assert not broken, "\n".join(broken)


@pytest.mark.parametrize(
    ("guard", "module", "source", "sentence"),
    [
        (walled, "ticdc_lakehouse.targets.merge", "from ticdc_source.schema import types", "nothing deeper"),
        (downwards, "schema.types", "from ticdc_source.kernels import wire", "kernels lies above schema"),
        (sql_as_written, "audit.repair", "self.spark.sql('SELECT 1')", "call run_sql"),
    ],
)
def test_the_guard_sees(guard: Guard, module: str, source: str, sentence: str) -> None:
    """A law is broken here, and the guard says so: it does not pass because it is blind."""
    broken = list(
        guard({f"{PACKAGE}.cli": "", **modules(), module if module.startswith(COPY) else f"{PACKAGE}.{module}": source})
    )

    assert any(sentence in report for report in broken), broken


BLOCKED_IMPORT = """
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
    # kafka-python reads its message definitions by functions that Python 3.11 deprecates.
    warn = [
        "-W",
        "error",
        "-W",
        "ignore:read_text is deprecated:DeprecationWarning",
        "-W",
        "ignore:open_text is deprecated:DeprecationWarning",
    ]
    command = [sys.executable, *warn, "-c", BLOCKED_IMPORT, blocked, *names]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def below(name: str) -> list[str]:
    number = layer_of(name)
    assert number is not None
    return [module.removesuffix(".__init__") for module in modules() if (layer_of(folder(module)) or 0) > number]


def test_the_core_needs_neither_spark_nor_kafka() -> None:
    """Everything below `planning` imports without PySpark, kafka-python and a JVM, but what uses kafka-python."""
    core = [
        name for name in below("planning") if not name.startswith(f"{CLIENT_LIBRARY}.") or name.endswith(".connect")
    ]

    done = import_without("pyspark,py4j,kafka", core)

    assert len(core) > 20
    assert done.returncode == 0, done.stderr


def test_planning_and_the_command_need_no_spark() -> None:
    """Everything below `spark` and all that the command imports works where pyspark cannot be imported."""
    names = [*below("spark"), *(module.removesuffix(".__init__") for module in modules() if folder(module) in CLI)]
    with_spark = {f"{PACKAGE}.{module}" for module in OUTSIDERS["pyspark"]}
    done = import_without("pyspark,py4j", [name for name in names if name not in with_spark])

    assert done.returncode == 0, done.stderr


def test_columns_need_only_arrow() -> None:
    """Kernels, options and schemas import where pyarrow is all there is beside Python's own library."""
    done = import_without("pyspark,py4j,kafka,orjson,pandas", below("sources"))

    assert done.returncode == 0, done.stderr
