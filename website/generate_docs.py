"""`python -m website.generate_docs`, or `make docs`: write the generated parts of the documentation again.

A generated part is between `<!-- generated: name -->` and `<!-- end -->`. It is made from the tables that the code
uses, so it cannot differ from the code; `test_docs.py` fails if it is not up to date.
"""

import argparse
import ast
import inspect
import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path
from types import ModuleType

import pyarrow as pa

from benchmarks.results import FOLDER, caption, markdown, provenance
from tests.support.losses import LOSSES, MISSING, Lost
from tests.test_architecture import LAYERS, OUTSIDERS
from ticdc_lakehouse.cli.__main__ import COMMANDS as COMMANDS_OF_LAKEHOUSE
from ticdc_lakehouse.cli.__main__ import parser as parser_of_lakehouse
from ticdc_lakehouse.syncs.reports import EXPORTED as EXPORTED_OF_TABLES
from ticdc_source import errors
from ticdc_source.cli.__main__ import COMMANDS, parser
from ticdc_source.inspection.progress import EXPORTED, Exported
from ticdc_source.options.option import ALL_OUTPUTS
from ticdc_source.options.options import OPTIONS
from ticdc_source.pipeline.metadata import FORMAT_COLUMNS, HEADERS, METADATA, NAMES, SOURCE
from ticdc_source.protocols import OF_MESSAGES
from ticdc_source.schema.change_order import SEQUENCE
from ticdc_source.schema.types import CONVERSIONS, TIMESTAMP, TYPES, ColumnType, parse_type
from ticdc_source.spark.schema import to_spark
from website import PUBLIC, meanings

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "ticdc_source"
DOCS = (ROOT / "docs", ROOT / "lakehouse/docs")

_CITED = re.compile(r" \((?:docs|pingcap)/[^)]*\)")  # the source of a fact, in a docstring
SHORT = 3  # words before a colon that say too little without what follows it
_PART = re.compile(r"(<!-- generated: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
_FENCE = re.compile(r"<!-- (?:generated: (\w+)|end) -->")

# Types that need several lines in the table of types: what is shown, and the type behind it.
_FORMS: dict[str, tuple[tuple[str, ColumnType], ...]] = {
    "tinyint": (("tinyint, tinyint(1), bool", parse_type("tinyint(1)")),),
    "decimal": (
        ("decimal(12,2)", parse_type("decimal(12,2)")),
        ("decimal(65,30), or more than 38 digits", parse_type("decimal(65,30)")),
        ("decimal of unknown precision, with values such as 1.50", ColumnType("decimal", whole=1, scale=2)),
        ("decimal of unknown precision, with only NULLs", ColumnType("decimal")),
    ),
    "bit": (("bit(1)", parse_type("bit(1)")), ("other bit(n)", parse_type("bit(8)"))),
    "enum": (("enum with known labels", parse_type("enum('a')")), ("enum with unknown labels", parse_type("enum"))),
    "set": (
        ("set with known labels", parse_type("set('a')")),
        ("set with unknown labels", parse_type("set")),
        ("set with unknown labels and 64 members", ColumnType("set", wide=True)),
    ),
}

# Packages whose name on the package index is not the one that is imported.
_PACKAGES = {"kafka": "kafka-python", "prometheus_client": "prometheus-client", "pymysql": "PyMySQL"}

# What the documentation calls the kinds of `CONVERSIONS`, where Spark has another name.
_KINDS = {
    "integer": ("tinyint", "smallint", "int", "bigint"),
    "interval": ("interval day to second",),
    "array": ("array<float>",),
}


# The headings of the tables of options, by the option before which each stands.
_GROUPS = {
    "protocol": "Tables and output",
    "snapshot": "Rows from TiDB",
    "startingOffsets": "Where a read starts and ends",
    "maxOffsetsPerTrigger": "Micro-batches and tasks",
    "preimages": "Rows and columns",
    "inferSchema.maxRecords": "Schema and types",
    "mode": "Bad records and schema changes",
    "valueCompression": "Large messages",
    "verifyChecksum": "Checksums",
    "terminator": "Storage sink files",
    "schema.registry.url": "Schema registry",
    "fetchOffset.numRetries": "Waiting for brokers",
    "maxRowsPerBatch": "Memory, metrics, native path",
}
# How the table marks options that some output formats refuse; the page says what the marks mean.
_NOT_WITH = {(): "", ("record",): "¹", ("event", "record"): "²"}
_HEAD = ("| option | default | meaning |", "|---|---|---|")


def options_table() -> str:
    """Return the tables of options, one for each group."""
    lines = [
        "## Brokers and topics",
        "",
        *_HEAD,
        "| `kafka.bootstrap.servers` | required | brokers as `host:port`, comma-separated |",
        (
            "| `kafka.*` |  | properties of the Kafka client, under their Java names; properties that the source sets "
            "itself are rejected |"
        ),
    ]
    for option in OPTIONS:
        if option.name in _GROUPS:
            lines += ["", f"## {_GROUPS[option.name]}", "", *_HEAD]
        default = f"`{option.default}`" if option.default else ""
        scope = {"batch": " (batches)", "stream": " (streams)", None: ""}[option.only]
        mark = _NOT_WITH[tuple(output for output in ALL_OUTPUTS if output not in option.scope.outputs)]
        lines.append(f"| `{option.name}`{mark} | {default} | {option.meaning}{scope} |")
    return "\n".join(lines)


def _spark_name(arrow: pa.DataType) -> str:
    return _code(to_spark(pa.schema([pa.field("c", arrow)])).fields[0].dataType.simpleString())


def _code(*names: str) -> str:
    """Write names of types as code, so that Markdown does not read `array<float>` as a tag."""
    return ", ".join(f"`{name}`" for name in names)


def column_metadata_table() -> str:
    """Return the table of the metadata of table columns."""
    lines = ["| key | value |", "|---|---|"]
    return "\n".join(lines + [f"| `{key}` | {meaning} |" for key, meaning in meanings.FIELD_METADATA.items()])


def findings_table() -> str:
    """Return the table of the findings of `ticdc-source inspect`."""
    lines = ["| code | meaning |", "|---|---|"]
    return "\n".join(lines + [f"| `{code}` | {meaning} |" for code, meaning in meanings.FINDINGS.items()])


def commands_table(commands: Mapping[str, ModuleType]) -> str:
    """Return the table of commands."""
    lines = ["| command | what it does |", "|---|---|"]
    return "\n".join(lines + [f"| [`{name}`](#{name}) | {module.SUMMARY} |" for name, module in commands.items()])


def _arguments(command: str) -> list[str]:
    """Return the lines of a command's arguments, from argparse."""
    whole = parser() if command in COMMANDS else parser_of_lakehouse()
    (commands,) = (action for action in whole._actions if isinstance(action, argparse._SubParsersAction))
    lines = []
    for action in commands.choices[command]._actions:
        if not isinstance(action, argparse._HelpAction):
            value = "" if action.nargs == 0 else str(action.metavar or action.dest.upper())
            name = ", ".join(" ".join(filter(None, (option, value))) for option in action.option_strings) or value
            meaning = (action.help or "") % vars(action)
            lines.append(f"| `{name}` | {meaning}{'; required' if action.required and action.option_strings else ''} |")
    return lines


def _shared_arguments() -> list[str]:
    """Return the lines that all commands have in common that talk to Kafka, of which `export` requires none."""
    first, *others = (_arguments(command) for command in COMMANDS if command not in {"options", "export"})
    return [line for line in first if all(line in lines for lines in others)]


def arguments_table(command: str | None) -> str:
    """Return the table of a command's arguments; those that the commands of `ticdc-source` share have their own."""
    shared = _shared_arguments()
    known = {line.replace("; required |", " |") for line in shared}.union(shared)
    own = [line for line in _arguments(command) if line not in known] if command else shared
    if command in COMMANDS:
        own = [line for line in own if not line.startswith("| `--json`")]  # the page says once which commands have it
    return "\n".join(["| argument | meaning |", "|---|---|", *own])


def metadata_table() -> str:
    """Return the table of metadata columns in docs/reference/columns.md."""
    lines = ["| column | type | with | meaning |", "|---|---|---|---|"]
    for column in METADATA:
        name = f"_{column.name}"
        present = _BROUGHT_BY[column.level]
        lines.append(f"| `{name}` | `{_SPARK_NAMES[column.arrow]}` | {present} | {meanings.METADATA[name]} |")
    return "\n".join(lines)


def format_table(output: str) -> str:
    """Return the documentation's table of the columns of an `outputFormat` other than changelog."""
    texts = meanings.METADATA | meanings.COLUMNS[output]
    lines = ["| column | type | meaning |", "|---|---|---|"]
    for column in FORMAT_COLUMNS[output]:
        name = f"{'_' if column.prefixed else ''}{column.name}"
        if output == "record" and name in meanings.METADATA and name not in meanings.COLUMNS[output]:
            continue  # the page names them together
        lines.append(f"| `{name}` | `{_SPARK_NAMES[column.arrow]}` | {texts[name]} |")
    return "\n".join(lines)


_SPARK_NAMES = {
    pa.string(): "string", pa.int32(): "int", pa.int64(): "bigint", pa.binary(): "binary", TIMESTAMP: "timestamp",
    SEQUENCE: "struct",
    HEADERS: "array<struct<key string, value binary>>", SOURCE: "struct",
    NAMES: "array<string>", None: "struct of the table's columns",
}  # fmt: skip
_BROUGHT_BY = {"core": "always", "kafka": "`kafka`", "all": "`all`", "includeHeaders": "`includeHeaders`"}


def metrics_table() -> str:
    """Return the table of the fields of a metrics line."""
    lines = ["| field | meaning |", "|---|---|"]
    rows = [
        f"| {_code(*(each.name for each in same))} | {meaning} |"
        for meaning, same in groupby(meanings.METRICS, key=lambda each: each.meaning)
    ]
    return "\n".join(lines + rows)


def prometheus_table(metrics: Sequence[Exported]) -> str:
    """Return a table of Prometheus metrics."""
    lines = ["| metric | type | meaning |", "|---|---|---|"]
    return "\n".join(lines + [f"| `{each.name}` | {each.kind} | {each.meaning} |" for each in metrics])


def types_table() -> str:
    """Return the table of types; consecutive types that become the same Spark type share a line."""
    lines = ["| TiDB type | Spark type | Spark type if unsigned |", "|---|---|---|"]
    forms = ((shown, name, type_) for name in TYPES for shown, type_ in _FORMS.get(name, ((name, ColumnType(name)),)))
    for cells, group in groupby(forms, lambda form: (form[1] in _FORMS and form[0], *_spark_names(form[1], form[2]))):
        lines.append(f"| {', '.join(shown for shown, _, _ in group)} | {' | '.join(map(str, cells[1:]))} |")
    return "\n".join(lines)


def _spark_names(name: str, type_: ColumnType) -> tuple[str, str]:
    unsigned = TYPES[name].unsigned
    return _spark_name(type_.arrow), "" if unsigned is None else _spark_name(unsigned)


def conversions_table() -> str:
    """Return the table of the types that a hint can ask for."""
    lines = ["| Spark type | can be read as |", "|---|---|"]
    for source, targets in CONVERSIONS.items():
        names = [name for kind in dict.fromkeys([*targets, "string"]) for name in _names_of(kind)]
        lines.append(f"| {_code(*_names_of(source))} | {_code(*names)} |")
    return "\n".join(lines)


def _names_of(kind: str) -> tuple[str, ...]:
    return _KINDS.get(kind, (kind,))


def losses_list(protocol: str) -> str:
    """Return the list of what a protocol loses; the corpus tests allow exactly these."""
    lost: dict[str, dict[str, str]] = {}  # by protocol, what is lost by its name
    each: Lost
    for each in (*LOSSES, *MISSING):
        lost.setdefault(each.protocol, {})[each.name] = each.what
    if protocol == "debezium-avro" and lost["debezium"].items() - lost[protocol].items() == {
        ("decimal-as-double", lost["debezium"]["decimal-as-double"])
    }:
        return "- Everything that [debezium](debezium.md#what-it-loses) loses, except that DECIMAL is exact."
    return "\n".join(f"- {what}" for what in lost[protocol].values())


def layers_table() -> str:
    """Return the layers from the top down, and which outside packages each folder may import."""
    lines = [
        "| layer | folder or file | holds | may import, besides lower layers, Python's library and pyarrow |",
        "| --: |---|---|---|",
    ]
    for number, layer in enumerate(LAYERS, 1):
        for name, holds in layer.items():
            outsiders = [
                outsider
                for outsider, folders in sorted(OUTSIDERS.items())
                if any(f"{folder}.".startswith(f"{name}.") for folder in folders)
            ]
            shown = [_PACKAGES.get(outsider, outsider) for outsider in outsiders]
            lines.append(f"| {number} | `{name}` | {holds} | {', '.join(shown)} |")
    return "\n".join(lines)


def read_result(benchmark: str) -> str:
    """Return the result of a benchmark of reads: without what is for maintainers, which the JSON file has."""
    path = FOLDER / f"{benchmark}.json"
    table = (
        []
        if benchmark in {"stages", "scale", "memory"}
        else [markdown(path, without=("target", "µs: Java + Python", "MiB"))]
    )
    result = json.loads(path.read_text(encoding="utf-8"))
    there = result["environment"]
    machine = f"{there['machine']['cores']} cores ({there['machine']['cpu']})"
    where = f"*{result['begun'][:10]}, commit {there['commit'][:9]}, {machine}, PySpark {there['pyspark']}*"
    return "\n\n".join([*table, where, f"![{caption(path)}](../benchmarks/results/{benchmark}.png)"])


def sync_table() -> str:
    """Return the compared micro-batches of the benchmark of syncs, without those that create tables, and its chart."""
    path = FOLDER / "sync.json"
    head, *rows = json.loads(path.read_text(encoding="utf-8"))["table"]
    shown = ["", "ticdc", "tuned", "default", "ticdc / tuned", "CPU ratio"]
    named = [dict(zip(head, row, strict=True)) for row in rows]
    compared = [row for row in named if row["tuned"] and "created" not in row[""]]
    cells = [shown, ["---", *["--:"] * (len(shown) - 1)], *([row[name] for name in shown] for row in compared)]
    table = "\n".join(f"| {' | '.join(line)} |" for line in cells)
    return f"{table}\n\n{provenance(path)}\n\n![{caption(path)}](../../benchmarks/results/sync.png)"


def audit_table() -> str:
    """Return the table of the benchmark of audits, without the parts of an audit, which run at the same time."""
    path = FOLDER / "audit.json"
    lines = [line for line in markdown(path).splitlines() if "alone" not in line and "two tasks" not in line]
    return "\n".join([*lines, "", provenance(path)])


OF_README = ("canal-json", "canal-json, native off", "debezium, schema", "avro")


def _ratios() -> dict[str, tuple[float, float]]:
    """Return the ratios of the last full run of throughput on one core: per CPU second, and per second."""
    figures = json.loads((FOLDER / "throughput.json").read_text(encoding="utf-8"))["figures"]
    return {
        name.rpartition(", ")[0]: (of["ratio_rows_per_cpu_second"], of["ratio_rows_per_second"])
        for name, of in figures.items()
        if name.endswith("local[1]")
    }


def ratios_table() -> str:
    """Return README's table of throughput: some lines of the one on the page about performance."""
    lines = ["| messages | per CPU second | per second |", "|---|--:|--:|"]
    ratios = _ratios()
    return "\n".join([*lines, *(f"| {name} | {ratios[name][0]:.1f} | {ratios[name][1]:.1f} |" for name in OF_README)])


def speed() -> str:
    """Return the changelog's sentences about throughput: the smallest and the largest ratios."""
    native = [ratios for name, ratios in _ratios().items() if "native off" not in name]
    by_cpu, by_clock = (f"{min(column):.1f} to {max(column):.1f}" for column in zip(*native, strict=True))
    cpu, clock = next(ratios for name, ratios in _ratios().items() if "native off" in name)
    return (
        f"- {by_cpu} times as many rows per CPU second as Spark's Kafka source with hand-written decoding\n"
        f"  (`from_json`, `from_avro` or `mapInArrow`), and {by_clock} times as many per second. Without the\n"
        f"  native path: {cpu:.1f} and {clock:.1f} times."
    )


def api_table(package: str) -> str:
    """Return the table of a package's public names by module, with the first line of each docstring."""
    lines = ["| name | what it is or does |", "|---|---|"]
    for module in (each for each in PUBLIC if each.__name__.partition(".")[0] == package and each is not errors):
        prefix = module.__name__.removeprefix(package).removeprefix(".")
        for name in sorted(set(module.__all__) - {"__version__"}, key=lambda name: (name.lower(), name)):
            first = (inspect.getdoc(getattr(module, name)) or "").partition("\n")[0]
            lines.append(f"| `{prefix}{'.' if prefix else ''}{name}` | {first} |")
    return "\n".join(lines)


def errors_table() -> str:
    """Return the table of the errors of the package, in the order of their names."""
    lines = ["| error | meaning |", "|---|---|"]
    names = sorted({name for name in errors.__all__ if issubclass(getattr(errors, name), Exception)})
    return "\n".join(lines + [f"| `{name}` | {meanings.ERRORS[name]} |" for name in names])


def tree() -> str:
    """Return the folders of both packages from the top layer down, each with the start of its docstring."""
    names = [name for layer in LAYERS for name in layer]
    places = [ROOT / "lakehouse" / name.replace(".", "/") if "." in name else PACKAGE / name for name in names]
    lines = []
    for place in places:
        if not place.is_dir():
            continue
        summary = ast.get_docstring(ast.parse((place / "__init__.py").read_text(encoding="utf-8"))) or ""
        sentence = _CITED.sub("", summary.partition("\n")[0].partition(". ")[0].rstrip("."))
        clause = sentence.partition(": ")[0]
        lines.append(f"{place.name + '/':<13}{clause if len(clause.split()) > SHORT else sentence}")
    return "\n".join(["```text", *lines, "```"])


PARTS: dict[str, Callable[[], str]] = {
    "api": partial(api_table, "ticdc_source"),
    "errors": errors_table,
    "options": options_table,
    "commands": partial(commands_table, COMMANDS),
    "commands_of_lakehouse": partial(commands_table, COMMANDS_OF_LAKEHOUSE),
    "arguments": partial(arguments_table, None),
    **{f"arguments_of_{command}": partial(arguments_table, command) for command in (*COMMANDS, *COMMANDS_OF_LAKEHOUSE)},
    "metadata": metadata_table,
    "findings": findings_table,
    "column_metadata": column_metadata_table,
    "metrics": metrics_table,
    "prometheus": partial(prometheus_table, EXPORTED),
    "prometheus_of_sync": partial(prometheus_table, EXPORTED_OF_TABLES),
    "envelope": lambda: format_table("envelope"),
    "events": lambda: format_table("event"),
    "records": lambda: format_table("record"),
    "types": types_table,
    "conversions": conversions_table,
    "layers": layers_table,
    "speed": speed,
    "tree": tree,
    "ratios": ratios_table,
    **{
        benchmark: partial(read_result, benchmark)
        for benchmark in ("throughput", "files", "stages", "scale", "microbatch", "memory")
    },
    "sync": sync_table,
    "audit": audit_table,
    **{f"{protocol.replace('-', '_')}_losses": partial(losses_list, protocol) for protocol in OF_MESSAGES},
}


def documents() -> list[Path]:
    """Return README, CHANGELOG, CONTRIBUTING and the pages of both packages."""
    pages = [path for folder in DOCS for path in folder.rglob("*.md")]
    return sorted([*ROOT.glob("*.md"), ROOT / "lakehouse/README.md", *pages])


def parts_of(text: str) -> list[str]:
    """Return the names of the generated parts of a document.

    Raises:
        ValueError: a part is not closed, not opened, or inside another.
    """
    marks = [match[1] for match in _FENCE.finditer(text)]
    names, ends = marks[::2], marks[1::2]
    if None in names or any(ends) or len(names) != len(ends):
        raise ValueError(f"the marks of generated parts do not come in pairs: {marks}")
    return names


def generated(text: str) -> str:
    """Return a document with its generated parts written again.

    Raises:
        ValueError: as `parts_of`, or nothing generates a part of that name.
    """
    unknown = set(parts_of(text)) - set(PARTS)
    if unknown:
        raise ValueError(f"nothing generates {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    return _PART.sub(lambda part: f"{part[1]}{PARTS[part[2]]()}\n{part[3]}", text)


def main() -> int:
    """Rewrite what is not up to date."""
    for path in documents():
        text = path.read_text(encoding="utf-8")
        new = generated(text)
        if new != text:
            path.write_text(new, encoding="utf-8")
            sys.stdout.write(f"wrote {path.relative_to(ROOT)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
