"""`python -m tests.generate_docs`, or `make docs`: write the generated parts of the documentation again.

A generated part is between `<!-- generated: name -->` and `<!-- end -->`. It is made from the tables that the code
uses, so it cannot differ from the code; `test_docs.py` fails if it is not up to date.
"""

import argparse
import inspect
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa

import ticdc_source
from benchmarks.results import FOLDER, judged, markdown, provenance
from tests.support.losses import LOSSES, MISSING, Lost
from tests.test_architecture import LAYERS, OUTSIDERS
from ticdc_source.cli.main import COMMANDS, parser
from ticdc_source.driver.inspection.report import FINDINGS
from ticdc_source.driver.prometheus import EXPORTED
from ticdc_source.options.options import ALL_OUTPUTS, OPTIONS
from ticdc_source.pipeline.metadata import format_table, metadata_table
from ticdc_source.pipeline.metrics import METRICS
from ticdc_source.protocols import PROTOCOLS
from ticdc_source.protocols.debezium import types as debezium_types
from ticdc_source.schema.model import FIELD_METADATA
from ticdc_source.schema.types import CONVERSIONS, TYPES, ColumnType, parse_type
from ticdc_source.spark.schema import to_spark

ROOT = Path(__file__).resolve().parents[1]

_PART = re.compile(r"(<!-- generated: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
_FENCE = re.compile(r"<!-- (?:generated: (\w+)|end) -->")

# Types that need several lines in the table of types: what is shown, and the type behind it.
_FORMS: dict[str, tuple[tuple[str, ColumnType], ...]] = {
    "tinyint": (("tinyint, tinyint(1), bool", parse_type("tinyint(1)")),),
    "decimal": (
        ("decimal(12,2)", parse_type("decimal(12,2)")),
        ("decimal(65,30): more than 38 digits", parse_type("decimal(65,30)")),
        (
            "decimal without precision in the messages, value 1.50 in the sample",
            ColumnType("decimal", whole=1, scale=2),
        ),
        ("decimal without precision in the messages, only NULL in the sample", ColumnType("decimal")),
    ),
    "bit": (
        ("bit(1)", parse_type("bit(1)")),
        ("bit(8), or bit without length in the messages", parse_type("bit(8)")),
    ),
    "enum": (("enum with known labels", parse_type("enum('a')")), ("enum with unknown labels", parse_type("enum"))),
    "set": (
        ("set with known labels", parse_type("set('a')")),
        ("set with unknown labels", parse_type("set")),
        ("set with unknown labels, 64th member in the sample", ColumnType("set", wide=True)),
    ),
}

_SEEN = ColumnType("decimal", whole=1, scale=2)
_TOLD_BY_DDL = "with DDL"
_COMPATIBLE = "with `content-compatible=true` or DDL"
# Types whose rows depend on what the protocol or DDL says: what is shown after the name, and the type behind it.
_TOLD: dict[tuple[str, str], tuple[tuple[str, ColumnType], ...]] = {
    ("open-protocol", "decimal"): (
        ("with values like 1.50", _SEEN),
        (f"(12,2), {_TOLD_BY_DDL}", parse_type("decimal(12,2)")),
    ),
    ("open-protocol", "bit"): (("", ColumnType("bit")), (f"(1), {_TOLD_BY_DDL}", parse_type("bit(1)"))),
    ("open-protocol", "enum"): (("", ColumnType("enum")), (_TOLD_BY_DDL, parse_type("enum('a')"))),
    ("open-protocol", "set"): (("", ColumnType("set")), (_TOLD_BY_DDL, parse_type("set('a')"))),
    ("canal-json", "decimal"): (
        ("with values like 1.50", _SEEN),
        (f"(12,2) {_COMPATIBLE}", parse_type("decimal(12,2)")),
    ),
    ("canal-json", "bit"): (("", ColumnType("bit")), (f"(1) {_COMPATIBLE}", parse_type("bit(1)"))),
    ("canal-json", "enum"): (("", ColumnType("enum")), (_COMPATIBLE, parse_type("enum('a')"))),
    ("canal-json", "set"): (("", ColumnType("set")), (_COMPATIBLE, parse_type("set('a')"))),
    ("debezium", "decimal"): (
        ("", ColumnType("double")),
        (f"(12,2), {_TOLD_BY_DDL}", parse_type("decimal(12,2)")),
    ),
    ("debezium", "bit"): (("(1)", parse_type("bit(1)")), ("(8)", parse_type("bit(8)"))),
    ("debezium", "enum"): (("", parse_type("enum('a')")),),
    ("debezium", "set"): (("", parse_type("set('a')")),),
}

# Packages whose name on the package index is not the one that is imported.
_PACKAGES = {"kafka": "kafka-python", "prometheus_client": "prometheus-client"}

# What the documentation calls the kinds of `CONVERSIONS`, where Spark has another name.
_KINDS = {
    "integer": ("tinyint", "smallint", "int", "bigint"),
    "interval": ("interval day to second",),
    "array": ("array<float>",),
}


# The headings of the tables of options, by the option before which each stands.
_GROUPS = {
    "protocol": "Tables and output",
    "startingOffsets": "Where a read starts and ends",
    "maxOffsetsPerTrigger": "Micro-batches and tasks",
    "preimages": "Rows and columns",
    "inferSchema.maxRecords": "Schema and types",
    "mode": "Bad records and schema changes",
    "valueCompression": "Large messages",
    "fetchOffset.numRetries": "Waiting for brokers",
    "maxRowsPerBatch": "Memory, metrics, native path",
}
_HEAD = ("| option | default | meaning |", "|---|---|---|")


def options_table() -> str:
    """Return the tables of options, one for each group."""
    lines = [
        "## Brokers and topics",
        "",
        *_HEAD,
        "| `kafka.bootstrap.servers` | required | brokers as `host:port`, comma-separated |",
        (
            "| `kafka.*` |  | properties of the Kafka client, under their Java names; those that the source controls "
            "itself are rejected |"
        ),
    ]
    for option in OPTIONS.values():
        if option.name in _GROUPS:
            lines += ["", f"## {_GROUPS[option.name]}", "", *_HEAD]
        default = f"`{option.default}`" if option.default else ""
        scope = {"batch": " (batch reads only)", "stream": " (streams only)", None: ""}[option.only]
        others = [output for output in ALL_OUTPUTS if output not in option.outputs]
        if others:
            scope += f" (not with {' or '.join(f'`{output}`' for output in others)})"
        lines.append(f"| `{option.name}` | {default} | {option.meaning}{scope} |")
    return "\n".join(lines)


def _spark_name(arrow: pa.DataType) -> str:
    return _code(to_spark(pa.schema([pa.field("c", arrow)])).fields[0].dataType.simpleString())


def _code(*names: str) -> str:
    """Write names of types as code, so that Markdown does not read `array<float>` as a tag."""
    return ", ".join(f"`{name}`" for name in names)


def column_metadata_table() -> str:
    """Return the table of the metadata of table columns."""
    lines = ["| key | value |", "|---|---|"]
    return "\n".join(lines + [f"| `{key}` | {meaning} |" for key, meaning in FIELD_METADATA])


def findings_table() -> str:
    """Return the table of the findings of `ticdc-source inspect`."""
    lines = ["| code | meaning |", "|---|---|"]
    return "\n".join(lines + [f"| `{code}` | {meaning} |" for code, meaning in FINDINGS.items()])


def commands_table() -> str:
    """Return the table of the commands."""
    lines = ["| command | shows, or does |", "|---|---|"]
    return "\n".join(lines + [f"| [`{name}`](#{name}) | {module.SUMMARY} |" for name, module in COMMANDS.items()])


def arguments_table(command: str) -> str:
    """Return the table of a command's arguments, from argparse."""
    (commands,) = (action for action in parser()._actions if isinstance(action, argparse._SubParsersAction))
    lines = ["| argument | meaning |", "|---|---|"]
    for action in commands.choices[command]._actions:
        if not isinstance(action, argparse._HelpAction):
            value = "" if action.nargs == 0 else str(action.metavar or action.dest.upper())
            name = ", ".join(" ".join(filter(None, (option, value))) for option in action.option_strings) or value
            meaning = (action.help or "") % vars(action)
            lines.append(f"| `{name}` | {meaning}{'; required' if action.required and action.option_strings else ''} |")
    return "\n".join(lines)


def metrics_table() -> str:
    """Return the table of the members of a metrics line."""
    lines = ["| member | type | unit | meaning |", "|---|---|---|---|"]
    return "\n".join(lines + [f"| `{each.name}` | {each.type} | {each.unit} | {each.meaning} |" for each in METRICS])


def prometheus_table() -> str:
    """Return the table of Prometheus metrics."""
    lines = ["| metric | type | meaning |", "|---|---|---|"]
    return "\n".join(lines + [f"| `{each.name}` | {each.kind} | {each.meaning} |" for each in EXPORTED])


def types_table() -> str:
    """Return the table of types: what each TiDB type becomes in Spark."""
    lines = ["| TiDB type | Spark type | Spark type if unsigned |", "|---|---|---|"]
    lines += [f"| {', '.join(shown)} | {spark} | {unsigned} |" for shown, spark, unsigned in _type_rows()]
    return "\n".join(lines)


def _type_rows() -> Iterator[tuple[list[str], str, str]]:
    """Yield lines; consecutive types that become the same Spark type share a line."""
    forms = (
        (shown, name not in _FORMS, (_spark_name(type_.arrow), _unsigned_name(name)))
        for name in TYPES
        for shown, type_ in _FORMS.get(name, ((name, ColumnType(name)),))
    )
    for shown, (spark, unsigned) in _shared(forms):
        yield shown, spark, unsigned


def _unsigned_name(name: str) -> str:
    unsigned = TYPES[name].unsigned
    return "" if unsigned is None else _spark_name(unsigned)


def _shared(forms: Iterable[tuple[str, bool, tuple[str, ...]]]) -> Iterator[tuple[list[str], tuple[str, ...]]]:
    """Yield (names, cells) of (name, whether it may share its line, cells), names of equal cells together."""
    pending: tuple[list[str], tuple[str, ...]] | None = None
    for shown, may_share, cells in forms:
        if pending is not None and may_share and pending[1] == cells:
            pending[0].append(shown)
            continue
        if pending is not None:
            yield pending
        pending = [shown], cells
    if pending is not None:
        yield pending


def wire_table(protocol: str) -> str:
    """Return a protocol's table of types: how each is written, and what it becomes in Spark."""
    lines = ["| TiDB type | in the message | Spark type | Spark type if unsigned |", "|---|---|---|---|"]
    forms = (
        (
            f"{name}{more if more.startswith('(') else f' {more}'}".strip(),
            not more,
            (
                PROTOCOLS[protocol].kernels[name].written,
                _spark_name(type_.arrow),
                _unsigned_name(name) if type_.name == name else "",
            ),
        )
        for name in TYPES
        for more, type_ in _TOLD.get((protocol, name), (("", ColumnType(name)),))
    )
    lines += [f"| {', '.join(names)} | {' | '.join(cells)} |" for names, cells in _shared(forms)]
    return "\n".join(lines)


def conversions_table() -> str:
    """Return the table of the types that a hint can ask for."""
    lines = ["| type of the column in Spark | types as which it can be read |", "|---|---|"]
    for source, targets in CONVERSIONS.items():
        names = [name for kind in dict.fromkeys([*targets, "string"]) for name in _names_of(kind)]
        lines.append(f"| {_code(*_names_of(source))} | {_code(*names)} |")
    return "\n".join(lines)


def _names_of(kind: str) -> tuple[str, ...]:
    return _KINDS.get(kind, (kind,))


def losses_table() -> str:
    """Return the table of losses; the corpus tests allow exactly these."""
    lines = ["| protocol | lost |", "|---|---|"]
    lost: list[Lost] = [*LOSSES, *MISSING]
    rows = [(row.protocol, row.what) for row in lost]
    order = list(dict.fromkeys(protocol for protocol, _ in rows))
    lines += [f"| {protocol} | {what} |" for protocol, what in sorted(rows, key=lambda row: order.index(row[0]))]
    return "\n".join(lines)


def schemas_table() -> str:
    """Return the types as which debezium's schemas are read, and the other types that they may stand for."""
    lines = [
        "| type or name in the schema | read as | or as, if `tidb_type` or DDL messages say so |",
        "|---|---|---|",
    ]
    for wire, (first, *others) in debezium_types._BEHIND.items():
        lines.append(f"| `{wire}` | {first} | {', '.join(name for name in others if name != first)} |")
    return "\n".join(lines)


def wire_losses_table(protocol: str) -> str:
    """Return the table of what one protocol loses."""
    return "\n".join(["| lost |", "|---|", *(f"| {loss.what} |" for loss in LOSSES if loss.protocol == protocol)])


def layers_table() -> str:
    """Return the layers from the top down, and which outside packages each folder may import."""
    lines = [
        "| layer | folder or file | holds | may import, beside lower layers, Python's library and pyarrow |",
        "| --: |---|---|---|",
    ]
    for number, layer in enumerate(LAYERS, 1):
        for name, holds in layer.items():
            outsiders = [
                outsider
                for outsider, folders in sorted(OUTSIDERS.items())
                if name in {folder.split(".")[0] for folder in folders}
            ]
            shown = [_PACKAGES.get(outsider, outsider) for outsider in outsiders]
            lines.append(f"| {number} | `{name}` | {holds} | {', '.join(shown)} |")
    return "\n".join(lines)


def result_table(benchmark: str) -> str:
    """Return the table of a benchmark's last full run, from `benchmarks/results`, and the environment of that run."""
    path = FOLDER / f"{benchmark}.json"
    return f"{markdown(path)}\n\n{judged(path)}\n{provenance(path)}".replace("\n\n\n", "\n\n")


def ratios_table() -> str:
    """Return README's table of throughput: the ratios of the last full run on one core."""
    figures = json.loads((FOLDER / "throughput.json").read_text(encoding="utf-8"))["figures"]
    lines = ["| messages | by CPU second | by the clock |", "|---|--:|--:|"]
    lines += [
        f"| {name.rpartition(', ')[0]} | {of['ratio_rows_per_cpu_second']:.1f} | {of['ratio_rows_per_second']:.1f} |"
        for name, of in figures.items()
        if name.endswith("local[1]")
    ]
    return "\n".join(lines)


def api_table() -> str:
    """Return the table of public names, with the first line of each docstring."""
    lines = ["| name | what it is or does |", "|---|---|"]
    for name in sorted(set(ticdc_source.__all__) - {"__version__"}, key=lambda name: (name.lower(), name)):
        first = (inspect.getdoc(getattr(ticdc_source, name)) or "").partition("\n")[0]
        lines.append(f"| `{name}` | {first} |")
    return "\n".join(lines)


PARTS: dict[str, Callable[[], str]] = {
    "api": api_table,
    "options": options_table,
    "commands": commands_table,
    **{f"arguments_of_{command}": partial(arguments_table, command) for command in COMMANDS},
    "metadata": metadata_table,
    "findings": findings_table,
    "column_metadata": column_metadata_table,
    "metrics": metrics_table,
    "prometheus": prometheus_table,
    "envelope": lambda: format_table("envelope"),
    "events": lambda: format_table("event"),
    "records": lambda: format_table("record"),
    "types": types_table,
    "conversions": conversions_table,
    "losses": losses_table,
    "debezium_schemas": schemas_table,
    "layers": layers_table,
    "ratios": ratios_table,
    **{
        benchmark: partial(result_table, benchmark)
        for benchmark in ("throughput", "stages", "scale", "microbatch", "memory")
    },
    **{f"{protocol.replace('-', '_')}_types": partial(wire_table, protocol) for protocol in PROTOCOLS},
    **{f"{protocol.replace('-', '_')}_losses": partial(wire_losses_table, protocol) for protocol in PROTOCOLS},
}


def documents() -> list[Path]:
    """Return the project's README, CHANGELOG, CONTRIBUTING and pages of docs/."""
    return sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def parts_of(text: str) -> list[str]:
    """Return the names of the generated parts of a document.

    Raises:
        ValueError: a part is not closed, not opened, or inside another.
    """
    marks = [match[1] for match in _FENCE.finditer(text)]
    names, ends = marks[::2], marks[1::2]
    if None in names or any(ends) or len(names) != len(ends):
        msg = f"the marks of generated parts do not come in pairs: {marks}"
        raise ValueError(msg)
    return names


def generated(text: str) -> str:
    """Return a document with its generated parts written again.

    Raises:
        ValueError: as `parts_of`, or nothing generates a part of that name.
    """
    unknown = set(parts_of(text)) - set(PARTS)
    if unknown:
        msg = f"nothing generates {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}"
        raise ValueError(msg)
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
