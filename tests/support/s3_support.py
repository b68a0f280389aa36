"""A server that speaks S3 on this machine, and one that forgets what it was asked."""

import re
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from pypi_support import pypi_python

BUCKET: Final = "lake"
SECRET: Final = "a-secret-that-nobody-prints"
_START_SECONDS_MAX: Final = 60.0
_PACKAGE: Final = "moto[server]==5.2.5"
_NOT_COPIED: Final = ("connection", "transfer-encoding", "content-length", "date", "server")


@contextmanager
def object_store(directory: Path) -> Generator[dict[str, str]]:
    """Run one with an empty bucket; skips the test where there is none.

    Yields:
        What the environment of who uses it says.
    """
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    server = pypi_python(version, _PACKAGE).with_name("moto_server")
    log = directory / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [server, "--host", "127.0.0.1", "--port", "0"], stdout=output, stderr=output
        )
    try:
        url = _listening_at(log)
        urlopen(Request(f"{url}/{BUCKET}", method="PUT"), timeout=_START_SECONDS_MAX).close()
        yield {
            "AWS_ENDPOINT_URL": url,
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "tests",
            "AWS_SECRET_ACCESS_KEY": SECRET,
        }
    finally:
        process.kill()
        process.wait()


@contextmanager
def forgetful(url: str) -> Generator[str]:
    """Stand before a store and drop the condition `If-None-Match`, as older stores ignore it.

    Yields:
        Its own URL.
    """
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Forgetful)
    _Forgetful.before = urlsplit(url).netloc
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Forgetful(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    before = ""

    def do(self) -> None:
        size = int(self.headers.get("content-length") or 0)
        headers = {
            name: value for name, value in self.headers.items() if name.lower() != "if-none-match"
        }
        connection = HTTPConnection(self.before, timeout=_START_SECONDS_MAX)
        try:
            connection.request(self.command, self.path, self.rfile.read(size), headers)
            answer = connection.getresponse()
            body = answer.read()
        finally:
            connection.close()
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in _NOT_COPIED:
                self.send_header(name, value)
        length = answer.getheader("content-length") if self.command == "HEAD" else len(body)
        self.send_header("content-length", str(length or 0))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = do

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as it is there
        """Say nothing."""


def _listening_at(log: Path) -> str:
    deadline = time.monotonic() + _START_SECONDS_MAX
    while not (found := re.search(r"Running on (http://127\.0\.0\.1:\d+)", log.read_text())):
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.1)
    return found[1]
