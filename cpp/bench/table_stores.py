"""Stores of rows that are compared: each is put the same rows, and asked for the same ids.

prepare() makes of ids what the other methods take; that is not timed. put() gives rows that are 0
their first values: with "sgd" those that it is given, with "adagrad" those after a step that has
them as gradients. pull() returns [ids, dim] f32. step() is what a layer does in training: a pull,
and a push of a gradient for each id, which may repeat.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from jobs import PROGRAMS
from table_redis import RedisRows, Server
from table_streams import Ids, Values, keys_of

LR = 1.0 / 64  # A power of two: rows that SGD has made of their values have no rounding.
EPSILON = 1e-8  # Of Adagrad.
MAPS = PROGRAMS / "libtable_maps.so"


class Store:
    """What all have; a method that a store lacks is in none of its cases."""

    servers: tuple[int, ...] = ()  # Processes that have the rows, if this one has not.

    def prepare(self, ids: Ids) -> Any:
        return keys_of(ids)

    def put(self, batch: Any, rows: Values) -> None:
        raise NotImplementedError

    def pull(self, batch: Any) -> Values:
        raise NotImplementedError

    def push(self, batch: Any, gradients: Values) -> None:
        raise NotImplementedError

    def step(self, batch: Any, gradients: Values) -> None:
        raise NotImplementedError

    def close(self) -> None:
        """Ends what the store has started."""


class CorroStore(Store):
    """corro.table: in this process, or on the servers of its job."""

    def __init__(self, dim: int, optimizer: str, _rows: int) -> None:
        import corro.table

        adagrad = optimizer == "adagrad"
        self._scale = np.float32(1 if adagrad else -1 / LR)
        self._table = corro.table.Table(
            "bench",
            dim,
            optimizer=corro.table.Adagrad(lr=LR, epsilon=EPSILON)
            if adagrad
            else corro.table.SGD(lr=LR),
        )
        if os.environ.get("CORRO_SERVERS"):
            self.servers = _siblings("corro-server")

    def put(self, batch: Any, rows: Values) -> None:
        self._table.push(batch, rows * self._scale)

    def pull(self, batch: Any) -> Values:
        return self._table.pull(batch)

    def push(self, batch: Any, gradients: Values) -> None:
        self._table.push(batch, gradients)

    def step(self, batch: Any, gradients: Values) -> None:
        self._table.pull(batch)
        self._table.push(batch, gradients)


class TorchStore(Store):
    """torch.nn.EmbeddingBag with one id a bag. It has an array of all rows, and finds no keys."""

    def __init__(self, dim: int, optimizer: str, rows: int) -> None:
        import torch

        torch.set_num_threads(1)
        self._torch = torch
        self._bag = torch.nn.EmbeddingBag(
            rows, dim, mode="sum", sparse=True, _weight=torch.zeros(rows, dim)
        )
        self._sgd = optimizer == "sgd"
        self._adagrad = torch.optim.Adagrad(self._bag.parameters(), lr=LR, eps=EPSILON)

    def prepare(self, ids: Ids) -> Any:
        return self._torch.from_numpy(ids.astype(np.int64)), self._torch.arange(ids.size)

    def put(self, batch: Any, rows: Values) -> None:
        if self._sgd:
            with self._torch.no_grad():
                self._bag.weight[batch[0]] = self._torch.from_numpy(rows)
        else:
            self.step(batch, rows)

    def pull(self, batch: Any) -> Values:
        with self._torch.no_grad():
            return self._bag(*batch).numpy()

    def step(self, batch: Any, gradients: Values) -> None:
        self._bag(*batch).backward(self._torch.from_numpy(gradients))
        self._adagrad.step()
        self._adagrad.zero_grad()


class MapStore(Store):
    """A map of C++: table_maps.cc."""

    def __init__(self, kind: int, dim: int, rows: int) -> None:
        self._library = ctypes.CDLL(str(MAPS))
        self._library.table_map_create.restype = ctypes.c_void_p
        create = self._library.table_map_create
        self._map = ctypes.c_void_p(create(kind, ctypes.c_size_t(dim), ctypes.c_size_t(rows)))
        self._dim = dim

    def put(self, batch: Any, rows: Values) -> None:
        self._call(self._library.table_map_put, batch, rows)

    def pull(self, batch: Any) -> Values:
        rows = np.empty((batch.size, self._dim), np.float32)
        self._call(self._library.table_map_pull, batch, rows)
        return rows

    def _call(self, function: Callable[..., None], keys: Ids, rows: Values) -> None:
        count = ctypes.c_size_t(keys.size)
        function(self._map, ctypes.c_void_p(keys.ctypes.data), count, _address(rows))


class RedisStore(Store):
    """Redis by MGET and MSET. It has no arithmetic: push() sets rows to what it is given."""

    def __init__(self, dim: int, packages: Path) -> None:
        self._server = Server(packages)
        self.servers = (self._server.process.pid,)
        self._rows = RedisRows(self._server, dim)
        self.put = self._rows.put
        self.pull = self._rows.pull
        self.push = self._rows.put

    def close(self) -> None:
        self._server.close()


def make(name: str, dim: int, optimizer: str, rows: int, packages: str) -> Store:
    """The store of this name; `packages`: where those of packages.txt are unpacked."""
    if name == "flat_hash_map":
        return MapStore(0, dim, rows)
    if name == "locked maps":
        return MapStore(1, dim, rows)
    if name == "redis":
        return RedisStore(dim, Path(packages))
    return {"corro": CorroStore, "torch": TorchStore}[name](dim, optimizer, rows)


def _address(rows: Values) -> ctypes.c_void_p:
    return ctypes.c_void_p(rows.ctypes.data)


def _siblings(name: str) -> tuple[int, ...]:
    """Other children of this process's parent, by the name of their program."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            comm, _, rest = (folder / "stat").read_text().rpartition(")")
        except OSError:  # It has ended.
            continue
        if comm.endswith("(" + name) and int(rest.split()[1]) == os.getppid():
            found.append(int(folder.name))
    return tuple(found)
