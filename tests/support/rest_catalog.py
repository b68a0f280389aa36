"""A catalog of Iceberg tables that speaks as much of the REST protocol as tables need.

It keeps its tables in a file, as a SQL catalog does.
"""

import json
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from pyiceberg.catalog.rest import CreateTableRequest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.table import CommitTableRequest, Table

from rillnode.node.spark.job_config import CatalogConfig

_CODES: dict[type[Exception], int] = {
    CommitFailedException: 409,
    NamespaceAlreadyExistsError: 409,
    TableAlreadyExistsError: 409,
    NoSuchTableError: 404,
    NoSuchNamespaceError: 404,
}


class RestCatalogServer:
    """The service.

    Args:
        directory: where it keeps its tables.
        token: what a client has to show; empty for nothing.

    Attributes:
        slow_seconds: how long it takes to answer.
        broken: the status that it answers with instead; 0 for none.
        commits: commits that it has made or refused.
        lost: how many of the next commits it makes, and says that it does not know.
    """

    def __init__(self, directory: Path, token: str = "") -> None:
        self.sql = SqlCatalog("rest", uri=f"sqlite:///{directory}/rest.db",
                              warehouse=f"file://{directory}/warehouse")  # fmt: skip
        self.token = token
        self.slow_seconds = 0.0
        self.broken = 0
        self.commits = 0
        self.lost = 0
        self.port = 0

    def config(self, name: str = "rillnode") -> CatalogConfig:
        """How to reach it."""
        return CatalogConfig(name=name, type="rest", uri=f"http://127.0.0.1:{self.port}")

    @contextmanager
    def serving(self) -> Generator[None]:
        """Answer, on the port where it has answered before, if it has."""
        service = self

        class Handler(_Handler):
            server_of = service

        server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self.port = server.server_port
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            server.server_close()
            thread.join()

    def answer(self, method: str, parts: list[str], body: bytes) -> dict[str, Any]:
        """What it says to a request."""
        match method, parts:
            case "GET", ["config"]:
                return {"defaults": {}, "overrides": {}}
            case "POST", ["namespaces"]:
                namespace: list[str] = json.loads(body)["namespace"]
                self.sql.create_namespace(tuple(namespace))
                return {"namespace": namespace, "properties": {}}
            case "POST", ["namespaces", namespace_name, "tables"]:
                asked = CreateTableRequest.model_validate_json(body)
                table = self.sql.create_table(
                    (namespace_name, asked.name), asked.table_schema, asked.location,
                    properties=asked.properties,
                )  # fmt: skip
                return _described(table)
            case "GET", ["namespaces", namespace_name, "tables", name]:
                return _described(self.sql.load_table((namespace_name, name)))
            case "POST", ["namespaces", namespace_name, "tables", name]:
                self.commits += 1
                commit = CommitTableRequest.model_validate_json(body)
                table = self.sql.load_table((namespace_name, name))
                self.sql.commit_table(table, commit.requirements, commit.updates)
                if self.lost:
                    self.lost -= 1
                    raise OSError("the answer is lost")
                return _described(self.sql.load_table((namespace_name, name)))
            case _:
                raise NoSuchTableError(f"{method} {parts}")


class _Handler(BaseHTTPRequestHandler):
    server_of: RestCatalogServer

    def do_GET(self) -> None:
        self._answer("GET")

    def do_POST(self) -> None:
        self._answer("POST")

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Say nothing."""

    def _answer(self, method: str) -> None:
        service = self.server_of
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        time.sleep(service.slow_seconds)
        if service.token and self.headers.get("Authorization") != f"Bearer {service.token}":
            self._send(401, _error("NotAuthorizedException", "no such token", 401))
            return
        if service.broken:
            self._send(service.broken, _error("Failure", "out of order", service.broken))
            return
        parts = self.path.partition("?")[0].removeprefix("/v1/").split("/")
        try:
            self._send(200, service.answer(method, parts, body))
        except tuple(_CODES) as error:
            code = _CODES[type(error)]
            self._send(code, _error(type(error).__name__, str(error), code))
        except OSError as error:
            self._send(500, _error("Unknown", str(error), 500))

    def _send(self, code: int, document: dict[str, Any]) -> None:
        text = json.dumps(document).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)


def _error(kind: str, text: str, code: int) -> dict[str, Any]:
    return {"error": {"message": text, "type": kind, "code": code}}


def _described(table: Table) -> dict[str, Any]:
    return {
        "metadata-location": table.metadata_location,
        "metadata": json.loads(table.metadata.model_dump_json()),
        "config": {},
    }
