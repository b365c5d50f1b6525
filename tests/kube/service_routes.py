"""The ClusterIPs of a real node: connections to a service's address reach a pod behind it.

    service_routes.py FOLDER

FOLDER is a plane of up.sh. It is what kube-proxy is on other nodes, without iptables: pods have the
node as their gateway, so an address that the node itself has is enough.

The story: two threads follow services and endpoint slices and leave what they see in tables; each
change is handed to the event loop, which compares what is served with what should be. A service
with a pod that is ready has its address on the loopback interface, and a listening socket; each
connection is joined to one of the pods. A service without such a pod refuses, as with kube-proxy.
The API server's own address leads to it always; its slice could not have an address of loopback.
TCP alone. What is established stays when the pods behind a service change.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from api import Api, follow

Object = dict[str, Any]
Address = tuple[str, int]
SERVICE_LABEL = "kubernetes.io/service-name"
BLOCK = 1 << 16
API_SERVICE = ("10.96.0.1", 443)  # The first one of the range that up.sh gives.


def key_of(object_: Object) -> str:
    return f"{object_['metadata']['namespace']}/{object_['metadata']['name']}"


def wanted(services: dict[str, Object], slices: dict[str, Object]) -> dict[Address, list[Address]]:
    """Says which pods' addresses each ClusterIP and port leads to."""
    pods: dict[tuple[str, str], list[Address]] = {}
    for each in slices.values():
        service = f"{each['metadata']['namespace']}/{each['metadata']['labels'][SERVICE_LABEL]}"
        ready = [e for e in each["endpoints"] or [] if e["conditions"].get("ready")]
        for port in each["ports"] or []:
            addresses = [(address, port["port"]) for e in ready for address in e["addresses"]]
            pods.setdefault((service, port.get("name") or ""), []).extend(addresses)
    routes: dict[Address, list[Address]] = {}
    for key, each in services.items():
        address = each["spec"].get("clusterIP", "None")
        if address == "None":
            continue
        for port in each["spec"].get("ports", []):
            if behind := pods.get((key, port.get("name", "")), []):
                routes[address, port["port"]] = behind
    return routes


class Route:
    """One address of a service, listening."""

    def __init__(self, pods: list[Address]) -> None:
        self.pods = pods
        self._turn = itertools.count()
        self._server: asyncio.Server | None = None

    async def open(self, address: Address) -> None:
        self._server = await asyncio.start_server(self._join, *address)

    def close(self) -> None:
        if self._server is not None:
            self._server.close()

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        pod = self.pods[next(self._turn) % len(self.pods)]
        try:
            pod_reader, pod_writer = await asyncio.open_connection(*pod)
        except OSError:
            writer.transport.abort()
            return
        await asyncio.gather(copy(reader, pod_writer), copy(pod_reader, writer))
        for each in (writer, pod_writer):
            each.close()


async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Until the end; an end by an error is one for the other side, too."""
    try:
        while data := await reader.read(BLOCK):
            writer.write(data)
            await writer.drain()
        writer.write_eof()
    except OSError:
        writer.transport.abort()


class Routes:
    """All addresses of services."""

    def __init__(self, api_server: Address) -> None:
        self._api_server = api_server
        self._services: dict[str, Object] = {}
        self._slices: dict[str, Object] = {}
        self._routes: dict[Address, Route] = {}
        self._changed = asyncio.Event()
        self._changed.set()

    def on_service(self, kind: str, service: Object) -> None:
        self._note(self._services, kind, service)

    def on_slice(self, kind: str, slice_: Object) -> None:
        self._note(self._slices, kind, slice_)

    def _note(self, table: dict[str, Object], kind: str, object_: Object) -> None:
        if kind == "DELETED":
            table.pop(key_of(object_), None)
        else:
            table[key_of(object_)] = object_
        self._changed.set()

    async def run(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            routes = wanted(self._services, self._slices)
            await self._align(routes | {API_SERVICE: [self._api_server]})

    async def _align(self, routes: dict[Address, list[Address]]) -> None:
        for address in set(self._routes) - set(routes):
            self._routes.pop(address).close()
        for address, pods in routes.items():
            if route := self._routes.get(address):
                route.pods = pods
                continue
            self._routes[address] = route = Route(pods)
            own = ["ip", "address", "replace", f"{address[0]}/32", "dev", "lo"]
            subprocess.run(own, check=True)
            await route.open(address)
            print(f"services: {address} leads to {pods}", flush=True)


async def main() -> None:
    loop = asyncio.get_running_loop()
    server = urlsplit((Path(sys.argv[1]) / "server").read_text().strip())
    assert server.hostname is not None
    assert server.port is not None
    routes = Routes((server.hostname, server.port))

    def follow_in_thread(path: str, on_event: Callable[[str, Object], None], **query: str) -> None:
        def hand_over(kind: str, object_: Object) -> None:
            loop.call_soon_threadsafe(on_event, kind, object_)

        arguments = (Api(Path(sys.argv[1])), path, hand_over, "services")
        threading.Thread(target=follow, args=arguments, kwargs=query, daemon=True).start()

    follow_in_thread("/api/v1/services", routes.on_service)
    slices = "/apis/discovery.k8s.io/v1/endpointslices"
    follow_in_thread(slices, routes.on_slice, labelSelector=SERVICE_LABEL)
    await routes.run()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main())
