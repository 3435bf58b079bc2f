"""A REST catalog of Iceberg on 127.0.0.1: `python -m lakehouse.tests.syncs.rest_catalog WAREHOUSE TOKEN JAR…`.

Iceberg's own `CatalogHandlers` answer the requests, as in the server with which Iceberg tests its clients, which is in
no package registry. This program takes them off HTTP. It runs in the environment of Iceberg's PySpark, prints its
address, and ends when its input is closed.
"""

from __future__ import annotations

import json
import re
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

import pyspark
from py4j.java_gateway import JavaGateway
from py4j.protocol import Py4JJavaError

SHADED = "org.apache.iceberg.shaded.com.fasterxml.jackson"
REQUESTS = "org.apache.iceberg.rest.requests"
STATUS = {
    "NoSuchNamespaceException": 404,
    "NoSuchTableException": 404,
    "NoSuchViewException": 404,
    "AlreadyExistsException": 409,
    "CommitFailedException": 409,
    "NamespaceNotEmptyException": 409,
    "BadRequestException": 400,
    "IllegalArgumentException": 400,
    "ValidationException": 400,
}


class Answer(NamedTuple):
    """What a request gets: a status, and a text of JSON if there is one."""

    status: int
    text: str = ""


class Catalog:
    """A JDBC catalog in a JVM, asked as clients ask a REST catalog.

    Args:
        warehouse: the folder of the tables; the catalog's database is a file in it.
        jars: those of Iceberg and of SQLite.
    """

    def __init__(self, warehouse: Path, jars: list[str]) -> None:
        spark = Path(pyspark.__file__).with_name("jars")
        gateway = JavaGateway.launch_gateway(
            jarpath=str(next(spark.glob("py4j-*.jar"))), classpath=":".join([*jars, f"{spark}/*"]), die_on_exit=True
        )
        java = gateway.jvm
        self._java = java
        self._iceberg = java.org.apache.iceberg
        self._handlers = self._iceberg.rest.CatalogHandlers
        self._json = _class(java, f"{SHADED}.databind.ObjectMapper")()
        visible = _class(java, f"{SHADED}.annotation.JsonAutoDetect").Visibility.ANY
        self._json.setVisibility(_class(java, f"{SHADED}.annotation.PropertyAccessor").FIELD, visible)
        self._json.setPropertyNamingStrategy(_class(java, f"{SHADED}.databind.PropertyNamingStrategies").KEBAB_CASE)
        self._iceberg.rest.RESTSerializers.registerAll(self._json)
        self._catalog = self._iceberg.jdbc.JdbcCatalog()
        self._catalog.setConf(java.org.apache.hadoop.conf.Configuration())
        properties = java.java.util.HashMap()
        properties.put("uri", f"jdbc:sqlite:{warehouse}/catalog.db")
        properties.put("warehouse", str(warehouse))
        properties.put("jdbc.schema-version", "V1")
        self._catalog.initialize("server", properties)
        self._one_at_a_time = threading.RLock()  # SQLite has one writer

    def answer(self, method: str, path: str, body: str) -> Answer:
        """Return the answer to a request."""
        try:
            with self._one_at_a_time:
                return self._answer(method, path, body)
        except Py4JJavaError as error:
            name = error.java_exception.getClass().getSimpleName()
            status = STATUS.get(name, 500)
            said = {"message": str(error.java_exception.getMessage()), "type": name, "code": status}
            return Answer(status, json.dumps({"error": said}))

    def _answer(self, method: str, path: str, body: str) -> Answer:
        if path == "/v1/config":
            return Answer(200, '{"defaults": {}, "overrides": {}}')
        if path == "/v1/namespaces":
            if method == "POST":
                request = self._read(body, "CreateNamespaceRequest")
                return self._written(self._handlers.createNamespace(self._catalog, request))
            return self._written(self._handlers.listNamespaces(self._catalog, self._iceberg.catalog.Namespace.empty()))
        if path == "/v1/tables/rename":
            self._handlers.renameTable(self._catalog, self._read(body, "RenameTableRequest"))
            return Answer(204)
        parts = re.fullmatch(r"/v1/namespaces/([^/]+)(?:/(tables|properties)(?:/([^/]+)(/metrics)?)?)?", path)
        if parts is None:
            return Answer(404, '{"error": {"message": "no such route", "type": "NoSuchRoute", "code": 404}}')
        levels = unquote(parts[1]).split("\x1f")
        namespace = self._iceberg.catalog.Namespace.of(self._texts(levels))
        if parts[2] is None:
            return self._of_namespace(method, namespace)
        if parts[2] == "properties":
            request = self._read(body, "UpdateNamespacePropertiesRequest")
            return self._written(self._handlers.updateNamespaceProperties(self._catalog, namespace, request))
        if parts[3] is None:
            return self._of_tables(method, namespace, body)
        if parts[4] is not None:
            return Answer(204)
        table = self._iceberg.catalog.TableIdentifier.of(namespace, unquote(parts[3]))
        return self._of_table(method, table, body)

    def _of_namespace(self, method: str, namespace: Any) -> Answer:
        if method == "DELETE":
            self._handlers.dropNamespace(self._catalog, namespace)
            return Answer(204)
        found = self._written(self._handlers.loadNamespace(self._catalog, namespace))
        return Answer(204) if method == "HEAD" else found

    def _of_tables(self, method: str, namespace: Any, body: str) -> Answer:
        if method == "GET":
            return self._written(self._handlers.listTables(self._catalog, namespace))
        request = self._read(body, "CreateTableRequest")
        stages = request.stageCreate()
        create = self._handlers.stageTableCreate if stages else self._handlers.createTable
        return self._written(create(self._catalog, namespace, request))

    def _of_table(self, method: str, table: Any, body: str) -> Answer:
        if method == "DELETE":
            self._handlers.dropTable(self._catalog, table)
            return Answer(204)
        if method == "POST":
            request = self._read(body, "UpdateTableRequest")
            return self._written(self._handlers.updateTable(self._catalog, table, request))
        if method == "HEAD":
            self._handlers.tableExists(self._catalog, table)
            return Answer(204)
        every = self._iceberg.rest.RESTCatalogProperties.SnapshotMode.ALL
        return self._written(self._handlers.loadTable(self._catalog, table, every))

    def _read(self, body: str, name: str) -> Any:
        loaded = self._java.java.lang.Class.forName(f"{REQUESTS}.{name}")
        return self._json.readValue(body, loaded)

    def _written(self, response: Any) -> Answer:
        return Answer(200, self._json.writeValueAsString(response))

    def _texts(self, texts: list[str]) -> Any:
        found = self._java.java.lang.reflect.Array.newInstance(
            self._java.java.lang.Class.forName("java.lang.String"), len(texts)
        )
        for number, text in enumerate(texts):
            found[number] = text
        return found


def _class(java: Any, name: str) -> Any:
    found = java
    for part in name.split("."):
        found = getattr(found, part)
    return found


def server(catalog: Catalog, token: str) -> ThreadingHTTPServer:
    """Return a server of a catalog, for clients that know a token."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _do(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode("utf-8")
            if self.headers.get("Authorization") == f"Bearer {token}":
                answer = catalog.answer(self.command, urlsplit(self.path).path, body)
            else:
                said = {"message": "Not authorized", "type": "NotAuthorizedException", "code": 401}
                answer = Answer(401, json.dumps({"error": said}))
            content = answer.text.encode()
            self.send_response(answer.status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        do_GET = do_POST = do_DELETE = do_HEAD = _do  # noqa: N815 (the library's names)

    return ThreadingHTTPServer(("127.0.0.1", 0), Handler)


def main(warehouse: str, token: str, *jars: str) -> None:
    """Serve until the input is closed."""
    serving = server(Catalog(Path(warehouse), list(jars)), token)
    threading.Thread(target=serving.serve_forever, daemon=True).start()
    print(f"http://127.0.0.1:{serving.server_address[1]}", flush=True)  # noqa: T201 (to the parent)
    sys.stdin.read()
    serving.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
