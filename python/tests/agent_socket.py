"""The agent's socket as any process of a job may use it: keys of the bootstrap, by packets."""

from __future__ import annotations

import os
import socket
import struct

HEADER = struct.Struct("<BBBBIiII")
HELLO, WELCOME, GET, REPLY = 1, 2, 4, 5
READER = 2**31 - 1
VERSION = 2  # Of these messages.


def _send(agent: socket.socket, kind: int, rank: int, key: str) -> None:
    agent.send(HEADER.pack(kind, VERSION, 0, 0, 0, rank, len(key), 0) + key.encode())


def _receive(agent: socket.socket, kind: int) -> tuple[str, bytes]:
    packet = agent.recv(8192)
    found, _, code, _, _, _, key_bytes, _ = HEADER.unpack_from(packet)
    rest = packet[HEADER.size :]
    if found != kind or code != 0:
        raise RuntimeError(f"kind {found}, code {code}: {rest.decode(errors='replace')}")
    return rest[:key_bytes].decode(), rest[key_bytes:]


def server_addresses() -> list[tuple[str, int]]:
    """Returns where each table server of this process's job listens, once all have said it."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as agent:
        agent.connect("\0" + os.environ["CORRO_AGENT"])
        _send(agent, HELLO, READER, "")
        job, _ = _receive(agent, WELCOME)
        addresses = []
        for server in range(int(os.environ["CORRO_SERVERS"])):
            _send(agent, GET, READER, f"{job}/server/{server}")
            host, _, port = _receive(agent, REPLY)[1].decode().rpartition(":")
            addresses.append((host, int(port)))
        return addresses
