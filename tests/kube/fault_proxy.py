"""A proxy between a client and the API server that spoils what passes, by a seed.

with FaultProxy(plane, Faults(seed=1, rate=0.3)) as proxy:
    OperatorProcess(proxy.kubeconfig, space)

It has an authority of its own, whose certificate is in its kubeconfig, and shows the API server the
plane's admin certificate. A fault, if a request gets one, is one of these:

    conflict     409 for a patch or a delete with a precondition: somebody was faster
    expired      410 for a watch, by status or as its first event, so that it has to list again
    throttled    429 with Retry-After: 1
    broken       500, and nothing was done
    unsure       500, and yet it was done
    lost         done, and the connection ends before a byte of the answer
    cut          the answer, or the watch after some events, ends in the middle of a line
    slow         half a second passes before the server gets the request

The story of a request: a thread for each connection reads it whole, decides about it (one random
number generator, under a lock), sends it on over a connection of its own, and passes the answer on,
a watch's as it comes. `hold` stops a chosen write, before or after the server got it, until
`release` drops it; so a test can kill the client between any two of its writes.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import random
import ssl
import subprocess
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

from harness import Plane

KINDS = ("conflict", "expired", "throttled", "broken", "unsure", "lost", "cut", "slow")
WRITES = ("POST", "PUT", "PATCH", "DELETE")
SLOW_SECONDS = 0.5


@dataclass
class Faults:
    """Which fault a request gets. Externally synchronized."""

    seed: int = 0
    rate: float = 0.0
    kinds: tuple[str, ...] = KINDS
    seen: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    def choose(self, method: str, is_watch: bool) -> str:
        """A kind that this request can have, or ""."""
        if self._random.random() >= self.rate:
            return ""
        possible = [kind for kind in self.kinds if can_have(kind, method, is_watch)]
        if not possible:
            return ""
        kind = self._random.choice(possible)
        self.seen[kind] += 1
        return kind

    def number(self, least: int, most: int) -> int:
        return self._random.randint(least, most)


def can_have(kind: str, method: str, is_watch: bool) -> bool:
    if kind == "conflict":
        return method in ("PATCH", "DELETE", "PUT")
    if kind == "expired":
        return is_watch
    if kind in ("unsure", "lost"):
        return method in WRITES
    return True


def status(code: int, reason: str) -> bytes:
    body = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
    return json.dumps(body | {"code": code, "reason": reason, "message": "injected"}).encode()


class DropError(Exception):
    """The connection ends here."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    proxy: FaultProxy

    def handle(self) -> None:
        with contextlib.suppress(OSError, DropError, http.client.HTTPException):
            super().handle()
        self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        pass

    def pass_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        is_watch = "watch=1" in self.path or "watch=true" in self.path
        fault, cut_after = self.proxy.decide(self.command, self.path, is_watch)
        if fault == "slow":
            time.sleep(SLOW_SECONDS)
        if self.refuse(fault):
            return
        self.proxy.hold_point(self.command, self.path, answered=False)
        answer = self.ask(body)
        self.proxy.hold_point(self.command, self.path, answered=True)
        if fault == "lost":
            raise DropError
        if fault == "unsure":
            answer.read()
            return self.reply(500, status(500, "InternalError"))
        if is_watch and answer.status == 200:
            return self.stream(answer, cut_after if fault == "cut" else -1)
        text = answer.read()
        self.reply(answer.status, text, answer, len(text) // 2 if fault == "cut" else -1)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = pass_on  # noqa: N815 - the base's names

    def refuse(self, fault: str) -> bool:
        """Answers in the server's place, if the fault says so."""
        refusals = {
            "conflict": (409, "Conflict"),
            "expired": (410, "Expired"),
            "throttled": (429, "TooManyRequests"),
            "broken": (500, "InternalError"),
        }
        if fault not in refusals:
            return False
        code, reason = refusals[fault]
        if fault == "expired" and self.proxy.coin():
            event = b'{"type":"ERROR","object":' + status(code, reason) + b"}\n"
            self.reply(200, event)
        else:
            self.reply(code, status(code, reason))
        return True

    def ask(self, body: bytes) -> http.client.HTTPResponse:
        kept = {"Accept", "Content-Type", "User-Agent"}
        headers = {name: self.headers[name] for name in kept if self.headers.get(name)}
        self.upstream = getattr(self, "upstream", None) or self.proxy.connect()
        try:
            self.upstream.request(self.command, self.path, body or None, headers)
            return self.upstream.getresponse()
        except (OSError, http.client.HTTPException):
            raise DropError from None

    def reply(
        self,
        code: int,
        text: bytes,
        answer: http.client.HTTPResponse | None = None,
        cut_at: int = -1,
    ) -> None:
        self.send_response(code)
        kind = answer.getheader("Content-Type") if answer else None
        self.send_header("Content-Type", kind or "application/json")
        self.send_header("Content-Length", str(len(text)))
        after = "1" if code == 429 and answer is None else None
        if answer is not None:
            after = answer.getheader("Retry-After")
        if after:
            self.send_header("Retry-After", after)
        self.end_headers()
        self.wfile.write(text if cut_at < 0 else text[:cut_at])
        if cut_at >= 0:
            raise DropError

    def stream(self, answer: http.client.HTTPResponse, cut_after: int) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.flush()
        lines = 0
        while line := answer.readline():
            if lines == cut_after:
                part = line[: len(line) // 2]
                self.wfile.write(f"{len(part):x}\r\n".encode() + part + b"\r\n")
                raise DropError
            self.wfile.write(f"{len(line):x}\r\n".encode() + line + b"\r\n")
            self.wfile.flush()
            lines += 1
        self.wfile.write(b"0\r\n\r\n")


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, handler: type[Handler], tls: ssl.SSLContext) -> None:
        super().__init__(("127.0.0.1", 0), handler)
        self._tls = tls

    def finish_request(self, request: Any, client_address: Any) -> None:
        """On the connection's own thread: a slow handshake holds up nobody else."""
        with contextlib.suppress(OSError):
            request.settimeout(600)
            with self._tls.wrap_socket(request, server_side=True) as connection:
                super().finish_request(connection, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # A client that was killed.


class FaultProxy:
    """The proxy while it runs. Thread-safe."""

    def __init__(self, plane: Plane, faults: Faults | None = None) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="corro-proxy-")
        self._plane = plane
        self._address = urlsplit((plane.folder / "server").read_text().strip()).netloc
        self._lock = threading.Lock()
        self._faults = faults or Faults()
        self._random = random.Random(self._faults.seed)
        self._requests: Counter[str] = Counter()
        self._hold: tuple[int, bool] | None = None
        self._held = threading.Event()
        self._released = threading.Event()
        self._upstream = ssl.create_default_context(cafile=str(plane.folder / "ca.crt"))
        self._upstream.load_cert_chain(plane.folder / "admin.crt", plane.folder / "admin.key")
        self._server = Server(
            type("BoundHandler", (Handler,), {"proxy": self}), self._make_certificate()
        )
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def __enter__(self) -> FaultProxy:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: object, trace: TracebackType | None
    ) -> None:
        self.release()
        self._server.shutdown()
        self._server.server_close()
        self._folder.cleanup()

    def _make_certificate(self) -> ssl.SSLContext:
        folder = Path(self._folder.name)
        key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "3"]
        own = ["-keyout", "ca.key", "-out", "ca.crt"]
        signed = ["-CA", "ca.crt", "-CAkey", "ca.key", "-keyout", "server.key"]
        signed += ["-out", "server.crt", "-addext", "basicConstraints=critical,CA:FALSE"]
        signed += ["-addext", "subjectAltName=IP:127.0.0.1"]
        for name, options in (("corro-fault-proxy", own), ("proxy", signed)):
            command = ["openssl", "req", "-x509", *key, "-subj", f"/CN={name}", *options]
            subprocess.run(command, cwd=folder, check=True, capture_output=True)
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(folder / "server.crt", folder / "server.key")
        return tls

    @property
    def kubeconfig(self) -> Path:
        """For clients: any credentials will do."""
        folder = Path(self._folder.name)
        authority = base64.b64encode((folder / "ca.crt").read_bytes()).decode()
        server = f"https://127.0.0.1:{self._server.server_address[1]}"
        cluster = {"server": server, "certificate-authority-data": authority}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "proxy",
            "contexts": [{"name": "proxy", "context": {"cluster": "proxy", "user": "any"}}],
            "clusters": [{"name": "proxy", "cluster": cluster}],
            "users": [{"name": "any", "user": {"token": "any"}}],
        }
        (folder / "kubeconfig").write_text(json.dumps(config))
        return folder / "kubeconfig"

    def connect(self) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(self._address, context=self._upstream, timeout=600)

    # --- What tests ask ----------------------------------------------------------------------

    def requests(self) -> Counter[str]:
        """How many came so far: "POST pods", "WATCH services", "GET leases"."""
        with self._lock:
            return Counter(self._requests)

    def faults_seen(self) -> Counter[str]:
        with self._lock:
            return Counter(self._faults.seen)

    def end_faults(self) -> None:
        """From now on all goes well."""
        with self._lock:
            self._faults.rate = 0.0

    def hold(self, count: int, answered: bool) -> None:
        """Stops the count-th write from now on, before or after the server has got it."""
        with self._lock:
            self._held.clear()
            self._released.clear()
            self._hold = (count, answered)

    def is_held(self) -> bool:
        return self._held.is_set()

    def release(self) -> None:
        """DropErrors the write that is held, or is going to be."""
        with self._lock:
            self._hold = None
            self._released.set()

    # --- What connections ask ----------------------------------------------------------------

    def decide(self, method: str, path: str, is_watch: bool) -> tuple[str, int]:
        """The fault of this request, and after how many events a watch is cut."""
        with self._lock:
            self._requests[f"{'WATCH' if is_watch else method} {resource_of(path)}"] += 1
            fault = self._faults.choose(method, is_watch)
            return fault, self._faults.number(0, 5)

    def coin(self) -> bool:
        with self._lock:
            return self._random.random() < 0.5

    def hold_point(self, method: str, path: str, answered: bool) -> None:
        """A write of an object passes here twice; of Leases and events nothing rests."""
        if method not in WRITES or resource_of(path) in ("leases", "events"):
            return
        with self._lock:
            if self._hold is None or self._hold[1] != answered:
                return
            # What comes after the one that is held does not overtake it.
            self._hold = (self._hold[0] - 1, answered)
            if self._hold[0] > 0:
                return
        self._held.set()
        self._released.wait(timeout=120)
        raise DropError


def resource_of(path: str) -> str:
    """ "pods" of /api/v1/namespaces/a/pods/b, "corrojobs" of .../corrojobs/a/status."""
    words = path.partition("?")[0].strip("/").split("/")
    words = words[2:] if words[0] == "api" else words[3:]
    if words[:1] == ["namespaces"] and len(words) > 2:
        words = words[2:]
    return words[0] if words else "discovery"
