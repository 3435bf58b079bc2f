"""Conversations with TiDB: recorded once between a client and a real TiDB, and replayed to the client without one."""

import json
import lzma
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

_QUERY, _QUIT = 3, 1
_LARGEST = 0xFFFFFF


@dataclass
class Conversation:
    """What TiDB said.

    Attributes:
        greeting: before the client said anything.
        login: after the client had sent its user.
        answers: by statement.
        facts: what else the recording needs: moments, and the rows that there were.
    """

    greeting: bytes = b""
    login: bytes = b""
    answers: dict[str, bytes] = field(default_factory=dict)
    facts: dict[str, object] = field(default_factory=dict)

    def save(self, path: Path) -> None:
        """Write it to a file."""
        answers = {sql: answer.decode("latin-1") for sql, answer in self.answers.items()}
        members = {"greeting": self.greeting.decode("latin-1"), "login": self.login.decode("latin-1")}
        text = json.dumps({**members, "answers": answers, "facts": self.facts}, ensure_ascii=False, indent=0)
        path.write_bytes(lzma.compress(text.encode()))

    @classmethod
    def of(cls, path: Path) -> "Conversation":
        """Read it from a file."""
        read = json.loads(lzma.decompress(path.read_bytes()))
        answers = {sql: answer.encode("latin-1") for sql, answer in read["answers"].items()}
        return cls(read["greeting"].encode("latin-1"), read["login"].encode("latin-1"), answers, read["facts"])


def _packet(connection: socket.socket) -> bytes:
    """Receive a packet of the client, with its header; b"" if it has closed the connection."""
    header = _exactly(connection, 4)
    return header + _exactly(connection, int.from_bytes(header[:3], "little")) if header else b""


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = connection.recv(size - len(data))
        if not piece:
            return b""
        data += piece
    return data


def _statement(packet: bytes) -> str | None:
    return packet[5:].decode() if packet[4] == _QUERY else None


@contextmanager
def _listening(serve: "Serve") -> Iterator[int]:
    """Serve each connection to a port of 127.0.0.1 in a thread of its own; yield the port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def accept() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:  # closed
                    return
                threading.Thread(target=serve, args=[connection], daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        try:
            yield int(listener.getsockname()[1])
        finally:
            listener.shutdown(socket.SHUT_RDWR)


class Serve:
    """Serves one connection of a client."""

    def __call__(self, connection: socket.socket) -> None:
        """Talk to the client until it goes, or is sent away."""
        with connection:
            try:
                self.talk(connection)
            except OSError:
                return

    def talk(self, connection: socket.socket) -> None:
        """Answer the client."""
        raise NotImplementedError


@contextmanager
def recorded(host: str, port: int, into: Conversation) -> Iterator[int]:
    """Pass on to a TiDB what clients say, and note what it answers; yield the port for the clients.

    They speak one after the other, and without TLS.
    """

    class Passing(Serve):
        def talk(self, connection: socket.socket) -> None:
            with socket.create_connection((host, port)) as server:
                into.greeting = _answer(server)
                connection.sendall(into.greeting)
                server.sendall(_packet(connection))
                into.login = _answer(server)
                connection.sendall(into.login)
                while packet := _packet(connection):
                    if packet[4] == _QUIT:
                        return
                    server.sendall(packet)
                    answer = _answer(server)
                    statement = _statement(packet)
                    if statement is not None:
                        into.answers[statement] = answer
                    connection.sendall(answer)

    with _listening(Passing()) as own:
        yield own


def _answer(server: socket.socket) -> bytes:
    """Receive all that the server says next: nothing for a moment is the end."""
    server.settimeout(60)
    data = server.recv(1 << 16)
    server.settimeout(0.5)
    while True:
        try:
            piece = server.recv(1 << 16)
        except TimeoutError:
            return data
        if not piece:
            return data
        data += piece


@contextmanager
def replayed(conversation: Conversation, cuts: dict[str, list[int]] | None = None) -> Iterator[int]:
    """Answer clients as TiDB has; yield the port.

    `cuts` has statements, or what they begin with, each with the bytes after which the connection is closed: the next
    client that says the same gets as many as the next number says, and all if there is none.
    """
    left = {begin: list(sizes) for begin, sizes in (cuts or {}).items()}

    class Answering(Serve):
        def talk(self, connection: socket.socket) -> None:
            connection.sendall(conversation.greeting)
            _packet(connection)
            connection.sendall(conversation.login)
            while packet := _packet(connection):
                statement = _statement(packet)
                if statement is None:
                    return
                answer = conversation.answers.get(statement)
                if answer is None:
                    answer = error_packet(1105, f"not recorded: {statement}")
                sizes = next((sizes for begin, sizes in left.items() if statement.startswith(begin)), None)
                if sizes:
                    connection.sendall(answer[: sizes.pop(0)])
                    return
                connection.sendall(answer)

    with _listening(Answering()) as port:
        yield port


def packet_of(payload: bytes, number: int = 1) -> bytes:
    """Return packets that have a payload."""
    packets = b""
    while True:
        part, payload = payload[:_LARGEST], payload[_LARGEST:]
        packets += struct.pack("<I", len(part))[:3] + bytes([number % 256]) + part
        number += 1
        if len(part) < _LARGEST:
            return packets


def renumbered(packets: bytes, first: int = 1) -> bytes:
    """Return packets, the last of which may be cut off, with numbers that rise by one."""
    numbered, at = bytearray(packets), 0
    while at + 3 < len(packets):
        numbered[at + 3] = first % 256
        first += 1
        at += 4 + int.from_bytes(packets[at : at + 3], "little")
    return bytes(numbered)


def error_packet(code: int, text: str) -> bytes:
    """Return the packet of an error."""
    return packet_of(b"\xff" + struct.pack("<H", code) + b"#HY000" + text.encode())


END = packet_of(b"\xfe\0\0\x02\0")


def cell(value: bytes | None) -> bytes:
    """Return a cell of a row packet."""
    if value is None:
        return b"\xfb"
    size = len(value)
    if size < 0xFB:
        return bytes([size]) + value
    if size < 1 << 16:
        return b"\xfc" + struct.pack("<H", size) + value
    if size < 1 << 24:
        return b"\xfd" + struct.pack("<I", size)[:3] + value
    return b"\xfe" + struct.pack("<Q", size) + value


def row_of(*values: bytes | None) -> bytes:
    """Return the payload of a row packet."""
    return b"".join(map(cell, values))
