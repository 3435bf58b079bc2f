"""The supported wire formats. A new one is a module or folder of this package and a row of `DECODERS`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from ticdc_source.errors import OptionError
from ticdc_source.options.logins import RegistrySettings
from ticdc_source.options.options import Options
from ticdc_source.options.parsers import ParseError, one_of
from ticdc_source.protocols.avro import Avro
from ticdc_source.protocols.avro.row_schema import originals_of_sanitized as originals_of_sanitized  # for the planner
from ticdc_source.protocols.canal_json import CanalJSON
from ticdc_source.protocols.compression import Compression, looks_compressed
from ticdc_source.protocols.csv import CSV
from ticdc_source.protocols.debezium import Debezium
from ticdc_source.protocols.debezium.avro import DebeziumAvro
from ticdc_source.protocols.decoding import Decoder, DecoderSettings
from ticdc_source.protocols.events import Corrupt
from ticdc_source.protocols.large_messages import LargeMessages
from ticdc_source.protocols.mysql_rows import MySQLRows
from ticdc_source.protocols.open_protocol import OpenProtocol
from ticdc_source.protocols.simple import Simple
from ticdc_source.sources.chunk import Chunk
from ticdc_source.sources.record_source import WireFormats
from ticdc_source.sources.storage.file_format import FileSettings

# The first decoder that recognizes a record gets it. Those that look at the key or first bytes come before those that
# look for members, which may also be column names.
DECODERS: tuple[type[Decoder], ...] = (OpenProtocol, MySQLRows, Simple, CanalJSON, Debezium, DebeziumAvro, Avro, CSV)

# By name; decoders with the default of each option, for what does not depend on options.
PROTOCOLS: dict[str, Decoder] = {decoder.facts.name: decoder() for decoder in DECODERS}
# Those of messages: what the option `protocol` may name.
OF_MESSAGES = tuple(name for name, decoder in PROTOCOLS.items() if not decoder.facts.of_tables)
# What sources must know of them.
FORMATS = WireFormats(
    in_topics=frozenset(name for name, decoder in PROTOCOLS.items() if decoder.facts.in_topics),
    in_files={name: files for name, decoder in PROTOCOLS.items() if (files := decoder.facts.files) is not None},
    of_tables=next(name for name, decoder in PROTOCOLS.items() if decoder.facts.of_tables),
    lacking_commit_ts=frozenset(name for name, decoder in PROTOCOLS.items() if decoder.facts.lacks_commit_ts),
)


def checked_protocol(options: Options) -> str:
    """Return the option `protocol`: `auto`, or one of `OF_MESSAGES`.

    Raises:
        OptionError: no protocol has that name.
    """
    try:
        return one_of("auto", *OF_MESSAGES)(options.protocol)
    except ParseError as error:
        raise OptionError(error.of("protocol", options.protocol)) from None


def possible_decoders(options: Options) -> list[Decoder]:
    names = OF_MESSAGES if options.protocol == "auto" else [options.protocol]
    return [decoder_of(name, options) for name in names]


def decoder_of(protocol: str, options: Options, *, reads_files: bool = True) -> Decoder:
    """Make the decoder of a protocol. In this package, only this module reads options.

    Args:
        reads_files: whether it reads claim-check files. If not, large messages have only their key columns.
    """
    most = options.max_message_bytes
    together = min(Compression().max_together, options.max_bytes_per_batch)
    large = LargeMessages(options.claim_check_location, options.on_handle_key_only, most)
    settings = DecoderSettings(
        Compression(options.value_compression, most, together),
        large if reads_files else LargeMessages(on_key_only="null", max_bytes=most, reads_files=False),
        RegistrySettings.of(options),
        FileSettings.of(options),
        options,
    )
    return next(decoder(settings) for decoder in DECODERS if decoder.facts.name == protocol)


def recognized(key: bytes | None, value: bytes | None) -> str | None:
    """Return the protocol of a record by its bytes; None if no protocol recognizes it."""
    return next((name for name, decoder in PROTOCOLS.items() if decoder.facts.recognizes(key, value)), None)


def detect_protocol(chunks: Iterable[Chunk], *, skips_unknown: bool = False) -> str | None:
    """Detect the protocol by the first bytes of records.

    Returns:
        The protocol's name; None if no record tells it.

    Raises:
        OptionError: the records have two protocols, or an unsupported one.
    """
    seen: dict[str, str] = {}
    unknown: tuple[str, bytes] | None = None
    for chunk in chunks:
        for position, (key, value) in enumerate(zip(chunk.keys, chunk.values, strict=True)):
            name = recognized(key, value)
            if name is not None:
                if name not in seen:
                    seen[name] = str(chunk.address(position))
            elif unknown is None and value and not (skips_unknown and not looks_compressed(value)):
                # A null or empty value says nothing.
                unknown = str(chunk.address(position)), value
    if len(seen) > 1:
        listed = "; ".join(f"{name} at {where}" for name, where in seen.items())
        raise OptionError(
            f"The topics hold more than one protocol: {listed}. Read each with its own query and 'subscribe'"
        )
    if seen:
        return next(iter(seen))
    if unknown is not None:
        where, value = unknown
        reads = f"this version reads {', '.join(OF_MESSAGES)}"
        raise OptionError(f"The protocol of the messages is unknown: {describe_unknown(value)}; {reads} ({where})")
    return None


def protocol_of(chunks: Sequence[Chunk], options: Options) -> str | None:
    """Return the option `protocol`; with `auto`, and for rows of TiDB, detect it."""
    of_tables = PROTOCOLS[FORMATS.of_tables].facts.recognizes
    if options.protocol != "auto" and not any(of_tables(chunk.keys[0], chunk.values[0]) for chunk in chunks):
        return options.protocol
    return detect_protocol(chunks)


def describe_unknown(value: bytes) -> str:
    if looks_compressed(value):
        return "it looks compressed by TiCDC's large-message-handle-compression: pip install cramjam"
    return f"the value begins {value[:40]!r}"


def with_likely_protocol(corrupt: Corrupt, chunk: Chunk, decoder: Decoder) -> Corrupt:
    """Name another protocol in the error of a bad record that looks like one."""
    if chunk.failure is not None:
        return corrupt
    key, value = chunk.keys[corrupt.position], chunk.values[corrupt.position]
    name = None if decoder.facts.recognizes(key, value) else recognized(key, value)
    if name not in FORMATS.in_topics:
        return corrupt
    error = corrupt.error
    msg = f"{error.reason}. It looks like {name}: if all messages do, set protocol={name}, or leave 'protocol' out"
    return replace(corrupt, error=type(error)(msg, error.address))
