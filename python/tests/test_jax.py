"""Runs JAX's tests, under jax_ranks/, inside of jobs, with a JAX of their own.

JAX is in no environment but .venv-jax, which `make test-setup` makes.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import HERE, Launch, pass_in_ranks
from test_examples import EXAMPLES, figures, needs_images, some_images

ROOT = HERE.parents[1]
PYTHON = ROOT / ".venv-jax/bin/python"
OWN = ROOT / "python/src/jax/c_api.h"

needs_jax = pytest.mark.skipif(not PYTHON.exists(), reason="make test-setup makes .venv-jax")


@needs_jax
@pytest.mark.apart
@pytest.mark.parametrize("ranks", [1, 2])
def test_all(launch: Launch, ranks: int) -> None:
    pass_in_ranks(launch, "jax_ranks", PYTHON, ranks)


# Rank 1 is killed. The launcher asks the other one to end, who has to say first what it has seen.
LOST = """
import os, signal
import jax, corro, corro.jax

signal.signal(signal.SIGTERM, signal.SIG_IGN)
corro.init()
step = jax.jit(corro.jax.allreduce)
x = step(jax.numpy.ones(4)).block_until_ready()
if corro.rank() == 1:
    os.kill(os.getpid(), signal.SIGKILL)
try:
    while True:
        step(x).block_until_ready()
except jax.errors.JaxRuntimeError as error:
    print(error, flush=True)
"""


@needs_jax
def test_a_lost_rank_is_an_error_of_the_program(launch: Launch) -> None:
    job = launch("-c", LOST, python=PYTHON)
    assert job.code != 0
    lost = r"UNAVAILABLE: .*rank 0.*: rank 1 .*was lost: its process has ended"
    assert re.search(lost, job.output), job.output


# Rank 1 raises, and takes long to end: at first the launcher has only what the other one says.
RAISED = """
import atexit, os, time
os.environ["CORRO_RANK"] == "1" and atexit.register(time.sleep, 60)
import jax, corro, corro.jax

corro.init()
step = jax.jit(corro.jax.allreduce)
x = step(jax.numpy.ones(4))
if corro.rank() == 1:
    raise KeyError("my mistake")
while True:
    x = step(x)
"""


@needs_jax
def test_who_raised_is_named_and_not_who_waited_for_it(launch: Launch) -> None:
    job = launch("-c", RAISED, python=PYTHON)
    assert job.code == 1
    assert re.search(r"UNAVAILABLE: .*rank 1 has left the job", job.output), job.output
    assert re.search(r"^corro: rank 1 failed .*\n  what +KeyError: 'my mistake'$", job.output, re.M)


# The ranks wait for one another for ever, but for a deadline.
DIFFERENT = """
import jax, corro, corro.jax

corro.init()
verb = corro.jax.allgather if corro.rank() == 1 else corro.jax.allreduce
jax.jit(verb)(jax.numpy.ones(4)).block_until_ready()
"""


@needs_jax
def test_ranks_that_call_different_operations_are_told_so(launch: Launch) -> None:
    job = launch("-c", DIFFERENT, python=PYTHON, CORRO_TIMEOUT="5")
    assert job.code == 1
    block = " ".join(job.output[job.output.rindex("corro: rank ") :].split())
    assert re.search(r"what .*DEADLINE_EXCEEDED: .*: not submitted by rank", block), job.output
    assert re.search(r"others rank . waited in all(gather|reduce) 'jit_all", block), job.output
    assert "do make every rank call the same operations in the same order" in block


# Nobody waits for the steps, in which rank 0 is late. They are large: JAX runs small ones at once.
UNREAD = """
import time
import jax, corro, corro.jax

def late(x):
    time.sleep(1)
    return x

@jax.jit
def step(x):
    if corro.rank() == 0:
        x = jax.pure_callback(late, x, x)
    return corro.jax.allreduce(x @ weights)

corro.init()
weights = jax.numpy.eye(1000)
x = step(step(jax.numpy.ones([1000, 1000])))
if corro.rank() == 0:
    print("sum", int(x.sum()), flush=True)
"""


@needs_jax
def test_a_rank_leaves_after_the_last_step(launch: Launch) -> None:
    job = launch("-c", UNREAD, python=PYTHON).check()
    assert "sum 1000000" in job.output


# Rank 1 has fewer steps. They are computed in the background, and nobody reads what they return.
FEWER = """
import sys
import jax, corro, corro.jax

@jax.jit
def step(x):
    busy = jax.lax.fori_loop(0, 50, lambda _, y: jax.numpy.tanh(y @ y), jax.numpy.eye(200))
    return x - 0.1 * corro.jax.allreduce(x) + 0 * busy.sum()

corro.init()
x = jax.numpy.ones(4)
for _ in range(8 if corro.rank() == 0 else 5):
    x = step(x)
print("loop over", flush=True)
if sys.argv[1] == "shutdown":
    try:
        corro.shutdown()
    except corro.UnavailableError as error:
        print("shutdown:", error, flush=True)
"""


@needs_jax
def test_steps_that_failed_unseen_end_the_program_with_an_error(launch: Launch) -> None:
    job = launch("-c", FEWER, "exit", python=PYTHON)
    assert job.output.count("loop over") == 2
    assert job.code == 1, job.output
    block = " ".join(job.output[job.output.rindex("corro: rank ") :].split())
    assert re.search(r"what .*steps that nobody has waited for: .*rank 1 has left", block), block
    assert "rank 1 had left without an error" in block


@needs_jax
def test_steps_that_failed_unseen_are_an_error_of_shutdown(launch: Launch) -> None:
    job = launch("-c", FEWER, "shutdown", python=PYTHON).check()
    told = re.findall(r"shutdown: (.*)", job.output)
    assert len(told) == 1, job.output
    assert "steps that nobody has waited for" in told[0]


# Rank 1 is killed while the others have steps in the background, and go on from the last commit
# whose arrays were there; or rank 0 reads what has failed before the next commit.
ELASTIC = """
import os, signal, sys
import jax, corro, corro.elastic, corro.jax

corro.init()
first = corro.rank()
commits = 5 if sys.argv[1] == "commit" else 10

@jax.jit
def step(x):
    busy = jax.lax.fori_loop(0, 5, lambda _, y: jax.numpy.tanh(y @ y), jax.numpy.eye(200))
    return x - 0.001 * corro.jax.allreduce(x) + 0 * busy.sum()

@corro.elastic.run
def train(state):
    jax.clear_caches()
    while state.step < 40:
        state.x = step(state.x)
        state.step += 1
        if first == 1 and state.step == 15:
            os.kill(os.getpid(), signal.SIGKILL)
        if sys.argv[1] == "read":
            state.x[0].block_until_ready()
        if state.step % commits == 0:
            state.commit()

state = corro.elastic.State(x=jax.numpy.ones(4), step=0)
train(state)
print("end", corro.size(), state.step, bool(abs(state.x[0] - 0.999**40) < 1e-4), flush=True)
"""


@needs_jax
@pytest.mark.parametrize("seen_by", ["commit", "read"])
def test_training_goes_on_without_a_rank_that_is_killed(launch: Launch, seen_by: str) -> None:
    options = ("--min-np", "1")
    job = launch("-c", ELASTIC, seen_by, python=PYTHON, options=options).check()
    assert "end 1 40 True" in job.output, job.output


# Not initialised; a program of two ranks in a world of one; two devices in one rank.
OUT_OF_PLACE = """
import jax, corro, corro.jax
x = jax.numpy.ones(4)
step = jax.jit(corro.jax.allreduce)
def attempt(what):
    try:
        jax.block_until_ready(what())
    except Exception as error:
        print(type(error).__name__, error, flush=True)
attempt(lambda: step(x))
attempt(lambda: corro.jax.allreduce(x))
corro.init()
step(x).block_until_ready()
corro.shutdown()
attempt(lambda: step(x))
corro.init()
mesh = jax.make_mesh((2,), ("x",))
spread = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x"))
attempt(lambda: step(jax.device_put(x, spread)))
"""


@needs_jax
def test_what_is_out_of_place_is_one_line(launch: Launch) -> None:
    job = launch(
        "-c",
        OUT_OF_PLACE,
        python=PYTHON,
        ranks=1,
        XLA_FLAGS="--xla_force_host_platform_device_count=2",
    ).check()
    said = [line for line in job.output.splitlines() if "Error" in line]
    assert len(said) == 4, job.output
    assert all("corro.init()" in line for line in said[:2]), said
    assert "FAILED_PRECONDITION" in said[2]
    assert "a rank has one device in a compiled function, and this one has 2" in said[3]


# The names of c_api.h, and XLA's: of structs, and of fields that have another name or place there.
STRUCTS = {
    "Extension": "Extension_Base",
    "Version": "Api_Version",
    "Buffer": "Buffer",
    "ByteSpan": "ByteSpan",
    "Scalar": "Scalar",
    "TypeId": "TypeId",
    "TypeInfo": "TypeInfo",
    "RegisterType": "Type_Register_Args",
    "SetState": "State_Set_Args",
    "GetState": "State_Get_Args",
    "Buffers": "Args",
    "Attributes": "Attrs",
    "MetadataExtension": "Metadata_Extension",
    "ErrorCreate": "Error_Create_Args",
    "FutureCreate": "Future_Create_Args",
    "FutureSetAvailable": "Future_SetAvailable_Args",
    "FutureSetError": "Future_SetError_Args",
    "CallFrame": "CallFrame",
}
FIELDS = {
    ("Buffers", "args"): ("Buffers", "each"),
    ("CallFrame", "api"): ("CallFrame", "api"),
    ("CallFrame", "ctx"): ("CallFrame", "context"),
    ("CallFrame", "stage"): ("CallFrame", "stage"),
    ("CallFrame", "args"): ("CallFrame", "arguments"),
    ("CallFrame", "rets"): ("CallFrame", "results"),
    ("CallFrame", "attrs"): ("CallFrame", "attributes"),
    ("CallFrame", "future"): ("CallFrame", "future"),
    ("Buffer", "data"): ("Buffer", "data"),
    ("Buffer", "dims"): ("Buffer", "dims"),
    ("Attributes", "names"): ("Attributes", "names"),
    ("Attributes", "attrs"): ("Attributes", "values"),
    ("ErrorCreate", "message"): ("ErrorCreate", "message"),
    ("ErrorCreate", "errc"): ("ErrorCreate", "code"),
    ("FutureSetError", "error"): ("FutureSetError", "error"),
    ("RegisterType", "type_info"): ("RegisterType", "info"),
    ("SetState", "state"): ("SetState", "state"),
    ("GetState", "state"): ("GetState", "state"),
}
API = {
    "Error_Create": "create_error",
    "Type_Register": "register_type",
    "State_Set": "set_state",
    "State_Get": "get_state",
    "Future_Create": "create_future",
    "Future_SetAvailable": "set_available",
    "Future_SetError": "set_error",
}
DTYPES = {
    "PRED": "kBool", "S8": "kI8", "S16": "kI16", "S32": "kI32", "S64": "kI64",
    "U8": "kU8", "U16": "kU16", "U32": "kU32", "U64": "kU64",
    "F16": "kF16", "F32": "kF32", "F64": "kF64", "BF16": "kBF16",
}  # fmt: skip


def assertions() -> list[str]:
    """Returns what has to hold in C++ of c_api.h and XLA's header."""
    sizes = [f"sizeof({own}) == sizeof(XLA_FFI_{xla})" for own, xla in STRUCTS.items()]
    places = [
        f"offsetof({own}, {field}) == offsetof(XLA_FFI_{STRUCTS[struct]}, {xla})"
        for (struct, xla), (own, field) in FIELDS.items()
    ]
    functions = [
        f"offsetof(Api, {own}) == offsetof(XLA_FFI_Api, XLA_FFI_{xla})" for xla, own in API.items()
    ]
    numbers = [f"int(DataType::{own}) == XLA_FFI_DataType_{xla}" for xla, own in DTYPES.items()]
    others = [
        "offsetof(Metadata, version) == offsetof(XLA_FFI_Metadata, api_version)",
        "kMetadataExtension == XLA_FFI_Extension_Metadata",
        "kScalarAttribute == XLA_FFI_AttrType_SCALAR",
        "kStringAttribute == XLA_FFI_AttrType_STRING",
        "int(Stage::kInstantiate) == XLA_FFI_ExecutionStage_INSTANTIATE",
    ]
    return sizes + places + functions + numbers + others


@needs_jax
def test_what_is_declared_is_what_xla_has(tmp_path: Path) -> None:
    """One translation unit with both."""
    code = "import jax.ffi; print(jax.ffi.include_dir())"
    asked = subprocess.run([PYTHON, "-c", code], check=True, capture_output=True, text=True)
    unit = tmp_path / "both.cc"
    unit.write_text(
        f'#include <xla/ffi/api/c_api.h>\n#include "{OWN}"\nusing namespace corro::jax;\n'
        + "".join(f"static_assert({one});\n" for one in assertions())
    )
    include = ["-isystem", asked.stdout.strip()]
    compiler = ["g++", "-std=c++20", "-fsyntax-only", "-w", *include, str(unit)]
    compiled = subprocess.run(compiler, capture_output=True, text=True, check=False)
    assert compiled.returncode == 0, compiled.stderr


def test_without_jax_one_line_says_what_to_install() -> None:
    code = "import corro.jax"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.strip().splitlines()[-1] == (
        "ModuleNotFoundError: corro.jax needs JAX, which is not installed here: pip install jax"
    )


def test_an_old_jax_is_refused(tmp_path: Path) -> None:
    (tmp_path / "jax.py").write_text("__version__ = '0.4.30'\n")
    done = subprocess.run(
        [sys.executable, "-c", "import corro.jax"],
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    last = done.stderr.strip().splitlines()[-1]
    assert re.fullmatch(
        r"ImportError: corro.jax needs JAX 0\.\d+ or newer, and 0.4.30 is installed here:"
        r" pip install --upgrade jax",
        last,
    )


@needs_jax
@needs_images
@pytest.mark.apart
def test_the_example_learns(launch: Launch, tmp_path: Path) -> None:
    images = str(some_images(tmp_path, 12800))
    script = str(EXAMPLES / "jax_fashion_mnist.py")
    job = figures(launch(script, "--data", images, "--epochs", "1", python=PYTHON))
    assert job["accuracy"] > 0.5
    assert job["ranks"] == 2
