"""Local TLS origins for real clients: a page, a git server, a Python package index, an npm registry.

Each listens on 127.0.0.1 with a certificate for its own name under ``.test``, and keeps what it was asked, so that a
test can tell that a request arrived, or that none did.
"""

import base64
import hashlib
import io
import json
import os
import ssl
import subprocess
import tarfile
import threading
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote

import trustme

KEPT_CONNECTION_TIMEOUT_S = 20.0
BACKEND_TIMEOUT_S = 30.0
GIT_BACKEND = "/usr/lib/git-core/git-http-backend"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request as an origin saw it."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """What an origin answers."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


Application = Callable[[Request], Response]


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """A running origin: where it is and what it was asked."""

    name: str
    port: int
    requests: list[Request]

    @property
    def url(self) -> str:
        """The address a client is given, with the name that the certificate is for."""
        return f"https://{self.name}:{self.port}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = KEPT_CONNECTION_TIMEOUT_S
    application: Application
    requests: list[Request]

    def _serve(self) -> None:
        path, _, query = self.path.partition("?")
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = Request(
            method=self.command, path=unquote(path), query=query, headers=headers, body=self._body(headers)
        )
        self.requests.append(request)
        response = type(self).application(request)
        self.send_response(response.status)
        for name, value in response.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(response.body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(response.body)

    do_GET = do_HEAD = do_POST = do_PUT = _serve  # noqa: N815 - http.server finds its methods by these names

    def _body(self, headers: Mapping[str, str]) -> bytes:
        if headers.get("expect", "").lower() == "100-continue":
            self.send_response_only(100)
            self.end_headers()
        if headers.get("transfer-encoding", "").lower() != "chunked":
            return self.rfile.read(int(headers.get("content-length", 0)))
        body = b""
        while size := int(self.rfile.readline().split(b";")[0], 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass
        return body

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: what was asked is kept instead."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that hangs up, or a handshake that it refuses, is a client's affair."""


@contextmanager
def serve(name: str, application: Application, authority: trustme.CA | None) -> Iterator[Origin]:
    """Serve an application under a name until the block is left; over TLS unless there is no authority."""
    requests: list[Request] = []
    handler = type("Handler", (_Handler,), {"application": staticmethod(application), "requests": requests})
    with _Server(("127.0.0.1", 0), handler) as server:
        if authority is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            authority.issue_cert(name).configure_cert(context)
            # The handshake belongs to the connection's own thread, not to the one that accepts.
            server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield Origin(name=name, port=server.server_address[1], requests=requests)
        finally:
            server.shutdown()
            thread.join()


def page(text: str) -> Application:
    """Return an application that answers every request with one text."""
    return lambda request: Response(headers={"Content-Type": "text/plain"}, body=text.encode())


def git_server(root: Path) -> Application:
    """Return git's own CGI program as an application: smart HTTP, for clone and push."""

    def answer(request: Request) -> Response:
        environ = {
            "PATH": os.environ["PATH"],
            "GIT_PROJECT_ROOT": str(root),
            "GIT_HTTP_EXPORT_ALL": "1",
            "GIT_CONFIG_NOSYSTEM": "1",
            "HOME": str(root),
            "REMOTE_USER": "tester",
            "REMOTE_ADDR": "127.0.0.1",
            "REQUEST_METHOD": request.method,
            "PATH_INFO": request.path,
            "QUERY_STRING": request.query,
            "CONTENT_TYPE": request.headers.get("content-type", ""),
            "CONTENT_LENGTH": str(len(request.body)),
            "HTTP_CONTENT_ENCODING": request.headers.get("content-encoding", ""),
            "GIT_PROTOCOL": request.headers.get("git-protocol", ""),
        }
        result = subprocess.run(
            [GIT_BACKEND], input=request.body, env=environ, capture_output=True, timeout=BACKEND_TIMEOUT_S
        )
        head, _, body = result.stdout.partition(b"\r\n\r\n")
        headers = dict(line.split(": ", 1) for line in head.decode("latin-1").split("\r\n") if line)
        status = int(headers.pop("Status", "200").split()[0])
        return Response(status=status, headers=headers, body=body)

    return answer


def wheel(name: str, version: str) -> tuple[str, bytes]:
    """Return the file name and the content of a wheel with one module in it."""
    info = f"{name}-{version}.dist-info"
    files = {
        f"{name}.py": f'VERSION = "{version}"\n',
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{path},,\n" for path in [*files, f"{info}/RECORD"])
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for path, text in {**files, f"{info}/RECORD": record}.items():
            archive.writestr(path, text)
    return f"{name}-{version}-py3-none-any.whl", content.getvalue()


def python_index(name: str, version: str) -> Application:
    """Return a package index with one wheel in it (PEP 503)."""
    file_name, content = wheel(name, version)
    digest = hashlib.sha256(content).hexdigest()

    def answer(request: Request) -> Response:
        if request.path == f"/simple/{name}/":
            link = (
                f'<!DOCTYPE html><html><body><a href="/files/{file_name}#sha256={digest}">{file_name}</a></body></html>'
            )
            return Response(headers={"Content-Type": "text/html"}, body=link.encode())
        if request.path == f"/files/{file_name}":
            return Response(headers={"Content-Type": "application/octet-stream"}, body=content)
        return Response(status=404)

    return answer


def _npm_tarball(name: str, version: str) -> bytes:
    files = {
        "package/package.json": json.dumps({"name": name, "version": version, "main": "index.js"}),
        "package/index.js": f'module.exports = "{version}";\n',
    }
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as archive:
        for path, text in files.items():
            entry = tarfile.TarInfo(path)
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    return content.getvalue()


def npm_registry(name: str, version: str) -> Application:
    """Return a registry with one package in it; the tarball's address is that of whoever asks."""
    tarball = _npm_tarball(name, version)
    integrity = "sha512-" + base64.b64encode(hashlib.sha512(tarball).digest()).decode()
    tarball_path = f"/{name}/-/{name}-{version}.tgz"

    def answer(request: Request) -> Response:
        if request.path == tarball_path:
            return Response(headers={"Content-Type": "application/octet-stream"}, body=tarball)
        if request.path != f"/{name}":
            return Response(status=404, headers={"Content-Type": "application/json"}, body=b"{}")
        dist = {"tarball": f"https://{request.headers['host']}{tarball_path}", "integrity": integrity}
        manifest = {"name": name, "version": version, "main": "index.js", "dist": dist}
        document = {"name": name, "dist-tags": {"latest": version}, "versions": {version: manifest}}
        return Response(headers={"Content-Type": "application/json"}, body=json.dumps(document).encode())

    return answer
