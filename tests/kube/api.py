"""A small client of the API server, for fake nodes and tests: the standard library alone.

api = Api(Path("build/kube/x7Fq2"))          # the folder that up.sh made
pod = api.get("/api/v1/namespaces/default/pods/a")
for kind, object in api.watch("/api/v1/pods", version): ...
"""

from __future__ import annotations

import http.client
import json
import os
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

Object = dict[str, Any]

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"  # Lists with a key, as conditions, are merged.
APPLY = "application/apply-patch+yaml"

WATCH_SECONDS = 300


class ApiError(Exception):
    """What the API server refused: its HTTP code, its reason, its message."""

    def __init__(self, code: int, status: Object) -> None:
        self.code = code
        self.reason = str(status.get("reason", ""))
        self.message = str(status.get("message", ""))
        super().__init__(f"{code} {self.reason}: {self.message}")


class Api:
    """Requests on kept connections, one for each thread. Thread-safe."""

    def __init__(self, folder: Path, user: str = "admin") -> None:
        self._address = urlsplit((folder / "server").read_text().strip()).netloc
        self._tls = ssl.create_default_context(cafile=str(folder / "ca.crt"))
        self._tls.load_cert_chain(folder / f"{user}.crt", folder / f"{user}.key")
        self._own = threading.local()

    def get(self, path: str, **query: str | int) -> Object:
        return self.request("GET", path, query=query)

    def post(self, path: str, body: Object, **query: str | int) -> Object:
        return self.request("POST", path, body, query=query)

    def put(self, path: str, body: Object, **query: str | int) -> Object:
        return self.request("PUT", path, body, query=query)

    def patch(self, path: str, body: Object, kind: str = MERGE, **query: str | int) -> Object:
        return self.request("PATCH", path, body, kind, query)

    def delete(self, path: str, body: Object | None = None, **query: str | int) -> Object:
        return self.request("DELETE", path, body, query=query)

    def request(
        self,
        method: str,
        path: str,
        body: Object | None = None,
        kind: str = "application/json",
        query: dict[str, str | int] | None = None,
    ) -> Object:
        """Sends one request and returns the object in the answer; raises ApiError from 400 on."""
        target = f"{path}?{urlencode(query)}" if query else path
        data = None if body is None else json.dumps(body).encode()
        headers = {"Accept": "application/json", "Content-Type": kind}
        answer = self._send(method, target, data, headers)
        text = answer.read()
        result: Object = json.loads(text) if text.startswith(b"{") else {"message": text.decode()}
        if answer.status >= 400:
            raise ApiError(answer.status, result)
        return result

    def _send(
        self, method: str, target: str, data: bytes | None, headers: dict[str, str]
    ) -> http.client.HTTPResponse:
        connection = getattr(self._own, "connection", None)
        if connection is not None:
            try:
                connection.request(method, target, data, headers)
                answer: http.client.HTTPResponse = connection.getresponse()
                return answer
            except (http.client.HTTPException, OSError):
                connection.close()  # The server ends idle connections: a fresh one says more.
        self._own.connection = connection = self._connect(timeout=60)
        connection.request(method, target, data, headers)
        return connection.getresponse()

    def _connect(self, timeout: float) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(self._address, context=self._tls, timeout=timeout)

    def watch(self, path: str, version: str, **query: str) -> Iterator[tuple[str, Object]]:
        """Yields (ADDED, MODIFIED, DELETED or BOOKMARK; object) until the server ends the watch."""
        parameters = {"watch": "true", "allowWatchBookmarks": "true", "resourceVersion": version}
        parameters |= {"timeoutSeconds": str(WATCH_SECONDS)} | query
        connection = self._connect(timeout=WATCH_SECONDS + 30)
        try:
            connection.request("GET", f"{path}?{urlencode(parameters)}")
            answer = connection.getresponse()
            if answer.status >= 400:
                raise ApiError(answer.status, json.loads(answer.read() or b"{}"))
            while line := answer.readline():
                event = json.loads(line)
                if event["type"] == "ERROR":
                    raise ApiError(int(event["object"].get("code", 500)), event["object"])
                yield event["type"], event["object"]
        finally:
            connection.close()


def follow(
    api: Api, path: str, on_event: Callable[[str, Object], None], who: str, **query: str
) -> None:
    """Lists, then watches, for ever: every object that is there and every event goes to `on_event`.

    A cut watch goes on where it was; what cannot be gone on with is listed anew.
    """
    since = ""
    while True:
        try:
            if not since:
                answer = api.get(path, **query)
                since = answer["metadata"]["resourceVersion"]
                for item in answer["items"]:
                    on_event("ADDED", item)
            for kind, object_ in api.watch(path, since, **query):
                since = object_["metadata"]["resourceVersion"]
                if kind != "BOOKMARK":
                    on_event(kind, object_)
        except (ApiError, OSError, ValueError) as error:
            print(f"{who}: {path}: {error}", flush=True)
            since = ""
            time.sleep(0.5)


def plane_folder() -> Path:
    """The folder of the plane that KUBECONFIG names."""
    return Path(os.environ["KUBECONFIG"]).parent
