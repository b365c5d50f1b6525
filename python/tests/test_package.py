"""What `import corro` promises, its errors, and its life: init, shutdown, fork."""

from __future__ import annotations

import builtins
import os
import pickle
import subprocess
import sys

import pytest

import corro
from corro import _native, errors

pytestmark = pytest.mark.torch22

ALONE = {k: v for k, v in os.environ.items() if not k.startswith(("CORRO_", "SLURM_", "OMPI_"))}


def run(code: str) -> str:
    """Runs a program in a process of its own, as a world of one."""
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", code],
        env=ALONE,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_import_loads_neither_numpy_nor_torch_nor_the_engine() -> None:
    loaded = run("import sys, corro; print(*sorted(sys.modules))").split()
    assert not {"numpy", "torch", "corro._native", "threading"} & set(loaded)


def test_the_entry_point_registers_without_loading_the_engine() -> None:
    out = run(
        "import sys, torch; from corro._autoload import register; register(); register();"
        "print(torch.distributed.is_backend_available('corro'), 'corro._native' in sys.modules)"
    )
    assert out.split() == ["True", "False"]


def test_the_entry_point_never_raises() -> None:
    run(
        "import sys, types; sys.modules['torch.distributed'] = None;"
        "sys.modules['torch'] = types.ModuleType('torch');"
        "from corro._autoload import register; register()"
    )


def test_a_world_of_one() -> None:
    out = run(
        "import corro, corro.numpy as cn\n"
        "corro.init(); corro.init()\n"
        "assert corro.is_initialized()\n"
        "print(corro.rank(), corro.size(), corro.local_rank(), corro.local_size())\n"
        "print(corro.node_rank(), corro.cross_rank(), corro.cross_size())\n"
        "print(cn.allreduce([1.0, 2.0]).tolist(), corro.world())\n"
        "corro.set_step(3); corro.barrier(); corro.shutdown(); corro.shutdown()\n"
        "assert not corro.is_initialized()\n"
        "corro.init(); print(cn.allreduce(7, corro.Sum))\n"
    )
    assert out.splitlines() == ["0 1 0 1", "0 0 1", "[1.0, 2.0] Group([0])", "7"]


def test_calls_before_init_say_what_to_do() -> None:
    for call in (corro.rank, corro.size, corro.barrier, corro.world):
        with pytest.raises(corro.FailedPreconditionError, match=r"corro\.init\(\)"):
            call()


def test_a_forked_child_knows_its_rank_but_cannot_communicate() -> None:
    out = run(
        "import os, corro, corro.numpy as cn\n"
        "corro.init()\n"
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "    try:\n"
        "        cn.allreduce(corro.rank())\n"
        "    except corro.FailedPreconditionError as error:\n"
        "        print(error, flush=True)\n"
        "    try:\n"
        "        corro.set_step(999)\n"
        "    except corro.FailedPreconditionError as error:\n"
        "        print(error, flush=True)\n"
        "    raise SystemExit(7)\n"
        "assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7\n"
        "print(cn.allreduce(5))\n"
    )
    assert "fork" in out.splitlines()[0]
    assert "fork" in out.splitlines()[1]
    assert out.splitlines()[2] == "5"


def test_gradients_survive_shutdown_as_nothing() -> None:
    run(
        "import corro.torch as corro, torch\n"
        "corro.init()\n"
        "p = torch.nn.Parameter(torch.zeros(3))\n"
        "optimizer = corro.DistributedOptimizer(torch.optim.SGD([p], 0.1))\n"
        "p.sum().backward(); optimizer.step()\n"
        "corro.shutdown()\n"
        "optimizer.zero_grad()\n"
        "try:\n"
        "    optimizer.step()\n"
        "except corro.FailedPreconditionError:\n"
        "    print('refused')\n"
    )


def test_works_in_flight_at_exit_do_no_harm() -> None:
    run(
        "import corro.torch as corro, torch\n"
        "corro.init()\n"
        "handles = [corro.allreduce_async(torch.ones(1 << 20)) for _ in range(8)]\n"
    )


class Store(dict[str, bytes]):
    """What the engine wants of a store; no other rank puts anything into it."""

    def put(self, key: str, value: bytes) -> None:
        self[key] = value

    def get(self, key: str, _timeout: float) -> bytes:
        if key not in self:
            raise corro.NotFoundError(key)
        return self[key]


class FullStore(Store):
    def put(self, *_: object) -> None:
        raise OSError("disk full")


def test_a_stores_own_error_is_raised_and_a_missing_key_is_none() -> None:
    with pytest.raises(corro.TimeoutError, match="rank 1 did not start"):
        _native.Engine(rank=0, size=2, job="j", store=Store(), timeout=0.01)
    with pytest.raises(OSError, match="disk full"):
        _native.Engine(rank=0, size=2, job="j", store=FullStore(), timeout=0.01)


@pytest.mark.parametrize("end", [KeyboardInterrupt, ConnectionError])
def test_what_a_store_raises_while_ranks_are_missing_ends_the_wait(end: type) -> None:
    class EndingStore(Store):
        def get(self, key: str, timeout: float) -> bytes:
            if "rank/1" in key:
                raise end
            return super().get(key, timeout)

    with pytest.raises(end):
        _native.Engine(rank=0, size=2, job="j", store=EndingStore(), timeout=1000)


def test_an_init_after_one_that_failed_says_why_it_cannot_work() -> None:
    out = run(
        "import corro\n"
        "from corro import _context\n"
        "class Store(dict):\n"
        "    put = dict.__setitem__\n"
        "    def get(self, key, timeout):\n"
        "        if key not in self: raise corro.NotFoundError(key)\n"
        "        return self[key]\n"
        "store = Store()\n"
        "for _ in range(2):\n"
        "    try: _context.start(rank=0, size=2, store=store, timeout=0.01)\n"
        "    except corro.CorroError as error: print(type(error).__name__, error)\n"
    ).splitlines()
    assert out[0].startswith("TimeoutError")
    assert out[1].startswith(
        "FailedPreconditionError corro.init: an earlier init() of this process"
    )


def test_a_thread_that_waits_for_ranks_does_not_disturb_the_exit() -> None:
    out = run(
        "import threading, time, corro\n"
        "from corro import _native\n"
        "class Store(dict):\n"
        "    put = dict.__setitem__\n"
        "    def get(self, key, timeout):\n"
        "        waits.set()\n"
        "        end = time.monotonic() + timeout\n"
        "        while time.monotonic() < end: time.sleep(0.0005)\n"
        "        raise corro.NotFoundError(key)\n"
        "waits = threading.Event()\n"
        "threading.excepthook = print\n"
        "def join(): _native.Engine(rank=0, size=2, store=Store(), timeout=1000)\n"
        "threading.Thread(target=join, daemon=True).start()\n"
        "waits.wait()\n"
        "print('last line')\n"
    )
    assert out == "last line\n"


@pytest.mark.parametrize(
    ("name", "builtin"),
    [
        ("TimeoutError", builtins.TimeoutError),
        ("MismatchError", ValueError),
        ("RankLostError", ConnectionError),
        ("PermissionDeniedError", PermissionError),
        ("ResourceExhaustedError", MemoryError),
        ("UnimplementedError", NotImplementedError),
        ("FailedPreconditionError", RuntimeError),
        ("OutOfRangeError", IndexError),
    ],
)
def test_errors_are_also_the_fitting_built_in(name: str, builtin: type[Exception]) -> None:
    assert issubclass(getattr(corro, name), builtin)
    assert issubclass(getattr(corro, name), corro.CorroError)


@pytest.mark.parametrize("code", range(1, 17))
def test_every_code_has_a_class_that_says_all(code: int) -> None:
    error = errors.make(code, "rank 3 was lost", 3, "allreduce", "exchange", torn=True)
    assert error.code == code
    assert (error.rank, error.op, error.phase, error.torn) == (3, "allreduce", "exchange", True)
    assert str(error) == "rank 3 was lost"
    assert type(error).__module__ == "corro"
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert vars(copy) == vars(error)


def test_classes_say_more_than_codes_where_the_engine_knows_more() -> None:
    assert type(errors.make(14, "", 2, "", "", torn=False)) is corro.RankLostError
    assert type(errors.make(14, "", -1, "", "", torn=False)) is corro.UnavailableError
    assert type(errors.make(3, "", -1, "allreduce", "exchange", torn=False)) is corro.MismatchError
    assert type(errors.make(3, "", -1, "", "", torn=False)) is corro.InvalidArgumentError
    assert type(errors.make(99, "", -1, "", "", torn=False)) is corro.UnknownError


def test_the_version() -> None:
    assert run("import corro; print(corro.__version__)").strip().count(".") == 2


def test_all_engines_are_closed_at_the_end() -> None:
    out = run(
        "from corro import _context, _native\n"
        "engines = [_native.Engine(rank=0, size=1) for _ in range(3)]\n"
        "for engine in engines: _context.Context(engine)\n"
        "_context.close_all()\n"
        "print(*[engine.closed for engine in engines])"
    )
    assert out.split() == ["True"] * 3
