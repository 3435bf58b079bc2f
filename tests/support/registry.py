"""A registry that serves the schemas of the corpus by the ids that TiCDC's encoders used, with both APIs."""

import json
import os
import threading
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from uuid import UUID

Json = dict[str, Any]


class SchemaServer(ThreadingHTTPServer):
    """Answers `GET /schemas/ids/{id}`, and AWS Glue's `GetSchemaVersion`."""

    daemon_threads = True

    def __init__(self, schemas: Mapping[str, str]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.schemas = dict(schemas)
        self.asked: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: SchemaServer

    def do_GET(self) -> None:
        name = self._name(self.path.rpartition("/")[2])
        self.server.asked.append(name)
        schema = self.server.schemas.get(name)
        if schema is None:
            self._answer(404, {"error_code": 40403, "message": "Schema not found"})
        else:
            self._answer(200, {"schema": schema})

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        name = self._name(asked["SchemaVersionId"])
        self.server.asked.append(name)
        schema = self.server.schemas.get(name)
        if schema is None:
            self._answer(400, {"__type": "EntityNotFoundException", "Message": "not found"})
        else:
            self._answer(
                200, {"SchemaVersionId": asked["SchemaVersionId"], "SchemaDefinition": schema, "DataFormat": "AVRO"}
            )

    def _name(self, schema: str) -> str:
        """Return the name of a schema: `<scenario>/<id>`, if the URL has a scenario."""
        scenario = self.path.strip("/").partition("/")[0]
        return schema if scenario in ("", "schemas") else f"{scenario}/{schema}"

    def _answer(self, status: int, content: Json) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def schemas_of(header: Mapping[str, Any]) -> dict[str, str]:
    return {str(each.get("guid") or each["id"]): each["schema"] for each in header.get("schemas", ())}


@contextmanager
def serving(schemas: Mapping[str, str]) -> Iterator[SchemaServer]:
    with SchemaServer(schemas) as server:
        thread = _started(server)
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def _started(server: SchemaServer) -> threading.Thread:
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    return thread


@cache
def _server() -> SchemaServer:
    server = SchemaServer({})
    _started(server)
    return server


WRITTEN = "written"  # stands for a scenario: schemas of messages that tests write


@cache
def registered(schema: str, *, glue: bool = False) -> int | UUID:
    """Register a schema of a message that a test writes; return its id."""
    number = zlib.crc32(schema.encode()) % (1 << 30) + 1
    schema_id = UUID(int=number << 64) if glue else number
    _server().schemas[f"{WRITTEN}/{schema_id}"] = schema
    return schema_id


def written_schema(schema_id: object) -> str:
    return _server().schemas[f"{WRITTEN}/{schema_id}"]


def registry_options(header: Mapping[str, Any]) -> dict[str, str]:
    """Return the options that say where schemas are: those of a file of the corpus, or those that tests wrote."""
    schemas = schemas_of(header)
    if not schemas and not registered.cache_info().currsize:
        return {}
    server, scenario = _server(), str(header["scenario"]) if schemas else WRITTEN
    server.schemas.update({f"{scenario}/{name}": text for name, text in schemas.items()})
    os.environ.setdefault("AWS_ACCESS_KEY_ID", "test")
    os.environ.setdefault("AWS_SECRET_ACCESS_KEY", "test")
    url = f"{server.url}/{scenario}"
    return {"schema.registry.url": url, "glue.endpoint": url, "glue.region": "us-east-1"}
