"""Strangers at the ports of a job that starts over TCP: nothing changes but a counter."""

from __future__ import annotations

import os
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from fault_jobs import Job

pytestmark = pytest.mark.faults

SECONDS = 60
HELLO_BYTES = 72  # docs/wire.md
Address = tuple[str, int]


@contextmanager
def job_in(directory: Path) -> Iterator[Job]:
    directory.mkdir()
    job = Job(directory)
    job.make_secret()
    yield job
    job.end()


def entry(job: Job, key: str) -> Path:
    """Waits until a rank has put a key into the job's directory; returns its file."""

    def found() -> list[Path]:
        return list((job.directory / "meet").glob(f"k-*_{key}-*"))

    wait_until(lambda: bool(found()))
    return found()[0]


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end, "never happened"
        time.sleep(0.01)


def give(file: Path, job: Job, listener: socket.socket) -> None:
    """Puts a peer record into a job's directory in one piece, with the listener's address."""
    meet = job.directory / "meet"
    wait_until(meet.is_dir)  # Its rank makes it.
    shutil.copy2(file, meet / "new")
    address = f"127.0.0.1:{listener.getsockname()[1]}"
    (meet / "new").write_bytes(with_tcp_address(file.read_bytes(), address))
    (meet / "new").rename(meet / file.name)


def with_tcp_address(record: bytes, address: str) -> bytes:
    """Returns a peer record (docs/wire.md) with another TCP address."""
    at = 8
    for _ in range(2):  # The host id, the Unix socket's name.
        at += 4 + int.from_bytes(record[at : at + 4], "little")
    end = at + 4 + int.from_bytes(record[at : at + 4], "little")
    return record[:at] + len(address).to_bytes(4, "little") + address.encode() + record[end:]


def tcp_address(record: bytes) -> Address:
    at = 8
    for _ in range(2):
        at += 4 + int.from_bytes(record[at : at + 4], "little")
    length = int.from_bytes(record[at : at + 4], "little")
    host, _, port = record[at + 4 : at + 4 + length].decode().rpartition(":")
    return host, int(port)


def tell(address: Address, *messages: bytes) -> bytes:
    """Sends messages and returns what is answered until the other side hangs up."""
    answers = b""
    # It may hang up before everything is said.
    with socket.create_connection(address, timeout=SECONDS) as door, suppress(ConnectionError):
        for message in messages:
            door.sendall(message)
        while answer := door.recv(4096):
            answers += answer
    return answers


def receive_exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        data += connection.recv(size - len(data))
    return data


def pump(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(1 << 16):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)


def knock_in_every_wrong_way(address: Address, hello: bytes) -> int:
    """Returns how many strangers have been there."""
    socket.create_connection(address, timeout=SECONDS).close()  # A port scan.
    assert tell(address, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n") == b""
    assert tell(address, os.urandom(4096)) == b""
    assert len(tell(address, hello, os.urandom(32))) == 64, "a challenge, and nothing after it"
    assert len(tell(address, hello)) == 64, "hung up on who says nothing more"
    return 5


def test_strangers_change_nothing_but_a_counter(tmp_path: Path) -> None:
    with job_in(tmp_path / "quiet") as job:
        job.start("adds", 2, CORRO_TRANSPORT="tcp")
        quiet = [job.facts(rank) for rank in range(2)]
    # The ranks meet in directories of their own, and the test carries the entries over: rank 1 is
    # led to the test's listener, from which its hello is heard and its bytes are passed on; rank 0
    # to one that never answers, so that it has to wait for rank 1.
    with (
        job_in(tmp_path / "zero") as zero,
        job_in(tmp_path / "one") as one,
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_server(("127.0.0.1", 0)) as deaf,
    ):
        shutil.copy2(zero.directory / "secret", one.directory / "secret")
        zero.start_rank(0, "adds", 2, CORRO_TRANSPORT="tcp")
        one.start_rank(1, "adds", 2, CORRO_TRANSPORT="tcp")
        told = entry(zero, "rank_0")
        door = tcp_address(told.read_bytes())
        give(entry(one, "rank_1"), zero, deaf)
        give(told, one, listener)
        listener.settimeout(SECONDS)
        dialler, _ = listener.accept()
        hello = receive_exactly(dialler, HELLO_BYTES)
        strangers = knock_in_every_wrong_way(door, hello)
        admitter = socket.create_connection(door)
        admitter.sendall(hello)
        pumps = [
            threading.Thread(target=pump, args=pair)
            for pair in ((dialler, admitter), (admitter, dialler))
        ]
        for thread in pumps:
            thread.start()
        noisy = [zero.facts(0), one.facts(0)]
        for thread in pumps:
            thread.join()
    for rank in range(2):
        assert noisy[rank]["sums"] == quiet[rank]["sums"]
        assert noisy[rank]["counters"] == quiet[rank]["counters"]
        assert quiet[rank]["refused"] == 0
    assert (noisy[0]["refused"], noisy[1]["refused"]) == (strangers, 0)
