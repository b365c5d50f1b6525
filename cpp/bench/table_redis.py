"""Redis as a store of rows: a server on loopback with a random password, and a fast client.

The client sends MGET and MSET of 1024 keys each, all of a call before it reads the first answer.
Requests and answers of rows of one size are arrays of numpy, so what the client costs is little.
"""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from processes import free_ports
from table_streams import Ids, Values

MOST_KEYS = 1024  # Of a command.
PATIENCE = 30  # Seconds until the server listens, and for each answer.


class Server:
    """A server that keeps everything in memory and writes nothing to disk."""

    def __init__(self, packages: Path) -> None:
        self.port = free_ports(1)[0]
        self.password = secrets.token_hex(16)
        libraries = packages / "usr/lib/x86_64-linux-gnu"
        program = str(packages / "usr/bin/redis-server")
        self.process = subprocess.Popen(
            [program, "-"],  # Its options come from stdin: no password in a command line.
            env={**os.environ, "LD_LIBRARY_PATH": str(libraries)},
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
        )
        assert self.process.stdin is not None
        self.process.stdin.write(
            f"bind 127.0.0.1\nport {self.port}\nrequirepass {self.password}\n"
            'save ""\nappendonly no\n'.encode()
        )
        self.process.stdin.close()

    def connect(self) -> socket.socket:
        """A connection that has said the password."""
        end = time.monotonic() + PATIENCE
        while True:
            try:
                connection = socket.create_connection(("127.0.0.1", self.port), PATIENCE)
                break
            except ConnectionRefusedError:
                if time.monotonic() > end or self.process.poll() is not None:
                    raise
                time.sleep(0.02)  # It does not say when it listens.
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(f"AUTH {self.password}\r\n".encode())
        expect(connection, b"+OK\r\n")
        return connection

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


class RedisRows:
    """Rows of `dim` f32 by 8 bytes of key."""

    def __init__(self, server: Server, dim: int) -> None:
        self._connection = server.connect()
        self._dim = dim

    def put(self, keys: Ids, rows: Values) -> None:
        parts = list(_parts(keys.size))
        requests = [mset(keys[part], rows[part]) for part in parts]
        self._connection.sendall(b"".join(requests))
        expect(self._connection, b"+OK\r\n" * len(parts))

    def pull(self, keys: Ids) -> Values:
        parts = list(_parts(keys.size))
        self._connection.sendall(b"".join(mget(keys[part]) for part in parts))
        rows = np.empty((keys.size, self._dim), np.float32)
        for part in parts:
            count = part.stop - part.start
            expect(self._connection, b"*%d\r\n" % count)
            answer = np.empty(count, _item(self._dim * 4))
            receive(self._connection, memoryview(answer.view(np.uint8)))
            rows[part] = answer["bytes"].view(np.float32)
        return rows


def mget(keys: Ids) -> bytes:
    """A command, to the byte."""
    items = _items(keys.view(np.uint8).reshape(keys.size, 8))
    return b"*%d\r\n$4\r\nMGET\r\n" % (keys.size + 1) + items.tobytes()


def mset(keys: Ids, rows: Values) -> bytes:
    """A command, to the byte: keys and rows by turns."""
    names = _items(keys.view(np.uint8).reshape(keys.size, 8))
    values = _items(rows.view(np.uint8).reshape(keys.size, -1))
    pairs = np.empty(keys.size, [("name", names.dtype), ("value", values.dtype)])
    pairs["name"] = names
    pairs["value"] = values
    return b"*%d\r\n$4\r\nMSET\r\n" % (2 * keys.size + 1) + pairs.tobytes()


def expect(connection: socket.socket, said: bytes) -> None:
    answer = bytearray(len(said))
    receive(connection, memoryview(answer))
    if answer != said:
        raise ConnectionError(f"redis: {bytes(answer)!r} instead of {said!r}")


def receive(connection: socket.socket, into: memoryview) -> None:
    while len(into) > 0:
        count = connection.recv_into(into)
        if count == 0:
            raise ConnectionError("redis has closed the connection")
        into = into[count:]


def _parts(count: int) -> Sequence[slice]:
    return [slice(at, min(at + MOST_KEYS, count)) for at in range(0, count, MOST_KEYS)]


def _item(size: int) -> np.dtype:
    """A string of so many bytes in the protocol: $8, its bytes, each with an end of line."""
    head = f"${size}\r\n"
    return np.dtype([("head", f"S{len(head)}"), ("bytes", np.uint8, (size,)), ("end", "S2")])


def _items(strings: np.ndarray) -> np.ndarray:
    size = strings.shape[1]
    items = np.empty(len(strings), _item(size))
    items["head"] = f"${size}\r\n".encode()
    items["bytes"] = strings
    items["end"] = b"\r\n"
    return items
