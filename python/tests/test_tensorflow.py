"""Runs TensorFlow's tests, under tensorflow_ranks/, inside of jobs, with a TensorFlow of their own.

TensorFlow is in no environment but .venv-tensorflow, which `make test-setup` makes.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import HERE, Launch, pass_in_ranks

ROOT = HERE.parents[1]
PYTHON = ROOT / ".venv-tensorflow/bin/python"
OWN = ROOT / "python/src/tensorflow/c_api.h"
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3"}

needs_tensorflow = pytest.mark.skipif(
    not PYTHON.exists(), reason="make test-setup makes .venv-tensorflow"
)


@needs_tensorflow
@pytest.mark.apart
@pytest.mark.parametrize("ranks", [1, 3])  # Three are no power of two.
def test_all(launch: Launch, ranks: int) -> None:
    pass_in_ranks(launch, "tensorflow_ranks", PYTHON, ranks, **QUIET)


# Rank 1 is killed. The launcher asks the other one to end, who has to say first what it has seen.
LOST = """
import os, signal
import tensorflow as tf
import horovod.tensorflow as hvd

signal.signal(signal.SIGTERM, signal.SIG_IGN)
hvd.init()

@tf.function
def step(x):
    return hvd.allreduce(x, name="step")

x = tf.ones([4])
step(x)
if hvd.rank() == 1:
    os.kill(os.getpid(), signal.SIGKILL)
try:
    while True:
        step(x)
except tf.errors.OpError as error:
    print(type(error).__name__, flush=True)
    print(error.message, flush=True)
"""


@needs_tensorflow
def test_a_lost_rank_is_an_error_of_the_op(launch: Launch) -> None:
    job = launch("-c", LOST, python=PYTHON, **QUIET)
    assert job.code != 0
    assert re.search(r"UnknownError$", job.output, re.MULTILINE), job.output
    assert re.search(r"rank 0.*: rank 1 .*was lost: its process has ended", job.output), job.output


# Rank 1 raises, and takes long to end: at first the launcher has only what the other one says.
RAISED = """
import atexit, os, time
os.environ["CORRO_RANK"] == "1" and atexit.register(time.sleep, 60)
import tensorflow as tf
import horovod.tensorflow as hvd

hvd.init()

@tf.function
def step(x):
    y = hvd.allreduce(x)
    return y + hvd.allreduce(2 * x)

step(tf.ones([4]))
if hvd.rank() == 1:
    raise KeyError("my mistake")
while True:
    step(tf.ones([4]))
"""


@needs_tensorflow
def test_who_raised_is_named_and_not_who_waited_for_it_in_a_graph(launch: Launch) -> None:
    job = launch("-c", RAISED, python=PYTHON, **QUIET)
    assert job.code == 1
    assert re.search(r"UnknownError: .*rank 1 has left the job", job.output, re.DOTALL), job.output
    assert re.search(r"^corro: rank 1 failed .*\n  what +KeyError: 'my mistake'$", job.output, re.M)


# The ranks wait for one another for ever, but for a deadline.
DIFFERENT = """
import tensorflow as tf
import horovod.tensorflow as hvd

hvd.init()

@tf.function
def step(x):
    if hvd.rank() == 1:
        return hvd.allgather(x)
    return hvd.allreduce(x)

step(tf.ones([4]))
"""


@needs_tensorflow
def test_ranks_that_call_different_operations_are_told_so(launch: Launch) -> None:
    job = launch("-c", DIFFERENT, python=PYTHON, CORRO_TIMEOUT="5", **QUIET)
    assert job.code == 1
    block = " ".join(job.output[job.output.rindex("corro: rank ") :].split())
    assert re.search(r"what .*DeadlineExceededError: .*: not submitted by rank", block), job.output
    assert re.search(r"others rank . waited in all(gather|reduce) 'Horovod", block), job.output
    assert "do make every rank call the same operations in the same order" in block


# As that, while the other rank has joined.
LOST_IN_JOIN = """
import os, signal
import tensorflow as tf
import horovod.tensorflow as hvd
from horovod.common.exceptions import HorovodInternalError

signal.signal(signal.SIGTERM, signal.SIG_IGN)
hvd.init()
hvd.allreduce(tf.ones([4]))
if hvd.rank() == 1:
    os.kill(os.getpid(), signal.SIGKILL)
try:
    hvd.join()
except HorovodInternalError as error:
    print("HorovodInternalError", error, flush=True)
"""


@needs_tensorflow
def test_a_rank_that_is_lost_while_others_have_joined_is_horovods_error(launch: Launch) -> None:
    job = launch("-c", LOST_IN_JOIN, python=PYTHON, **QUIET)
    assert re.search(r"HorovodInternalError .*rank 1 .*was lost", job.output, re.MULTILINE), (
        job.output
    )


# The first rank of three is killed in the sixth step; each step takes 1 off, on all ranks.
ELASTIC = """
import os, signal, sys
import tensorflow as tf
import horovod.tensorflow as hvd

hvd.init()
first = hvd.rank()
made = []

weights = tf.Variable([0.0, 0.0])

def step():
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(weights)
    tape = hvd.DistributedGradientTape(tape)
    weights.assign_sub(tape.gradient(loss, [weights])[0])

if sys.argv[1] == "function":
    step = tf.function(step)

@hvd.elastic.run
def train(state):
    while state.step < 10:
        if state.step == 5 and first == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        step()
        state.step += 1
        made.append(state.step)
        if state.step % 4 == 0:
            state.commit()

state = hvd.elastic.TensorFlowState([weights], step=0)
state.register_reset_callbacks([lambda: made.append("reset")])
train(state)
total = hvd.allreduce(tf.ones([1]), op=hvd.Sum)
print("end", hvd.rank(), weights.numpy().tolist(), total.numpy().tolist(), made, flush=True)
"""


@needs_tensorflow
@pytest.mark.parametrize("kind", ["eager", "function"])
def test_ranks_go_on_without_one_that_is_killed(launch: Launch, kind: str) -> None:
    options = ("--min-np", "2")
    job = launch("-c", ELASTIC, kind, python=PYTHON, ranks=3, options=options, **QUIET).check()
    made = "[1, 2, 3, 4, 5, 'reset', 5, 6, 7, 8, 9, 10]"
    for rank in range(2):
        assert f"end {rank} [-10.0, -10.0] [2.0] {made}" in job.output, job.output


# The first rank of three is killed while the others wait for it, in a graph.
ELASTIC_WAIT = """
import os, signal, sys
import tensorflow as tf
import horovod.tensorflow as hvd

hvd.init()
first = hvd.rank()

@tf.function
def wait():
    getattr(hvd, sys.argv[1])()

@hvd.elastic.run
def train(state):
    if first == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    wait()

train(hvd.elastic.TensorFlowState([tf.Variable(0.0)]))
print("end", hvd.rank(), hvd.size(), flush=True)
"""


@needs_tensorflow
@pytest.mark.parametrize("verb", ["barrier", "join"])
def test_who_waits_in_a_graph_goes_on_without_one_that_is_killed(launch: Launch, verb: str) -> None:
    options = ("--min-np", "2")
    job = launch("-c", ELASTIC_WAIT, verb, python=PYTHON, ranks=3, options=options, **QUIET).check()
    assert {f"end {rank} 2" for rank in range(2)} <= set(re.findall(r"end \d \d", job.output))


@needs_tensorflow
@pytest.mark.parametrize(
    "call",
    [
        "hvd.size_op()",
        "hvd.DistributedGradientTape(tf.GradientTape())",
        "hvd.DistributedOptimizer(tf.compat.v1.train.GradientDescentOptimizer(0.1))",
        "hvd.elastic.TensorFlowState([tf.Variable(1.0)])",
    ],
)
def test_without_init_one_line_says_so(call: str) -> None:
    code = f"import tensorflow as tf; import horovod.tensorflow as hvd; {call}"
    done = subprocess.run(
        [PYTHON, "-c", code],
        env={**os.environ, **QUIET},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr.strip().splitlines()[-1] == (
        "ValueError: Horovod has not been initialized; use hvd.init()."
    )


@needs_tensorflow
def test_what_is_declared_is_what_tensorflow_has(tmp_path: Path) -> None:
    """One translation unit with both: functions are declared alike, and numbers are the same."""
    include = subprocess.run(
        [PYTHON, "-c", "import tensorflow as tf; print(tf.sysconfig.get_include())"],
        env=QUIET,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    numbers = re.findall(r"^  (TF_\w+) = (\d+),$", OWN.read_text(), re.MULTILINE)
    assert len(numbers) == 13
    unit = tmp_path / "both.cc"
    unit.write_text(
        "#include <tensorflow/c/kernels.h>\n#include <tensorflow/c/ops.h>\n"
        "#include <tensorflow/c/tf_status.h>\n#include <tensorflow/c/tf_tensor.h>\n"
        f'#define CORRO_WITH_TENSORFLOW_HEADERS\n#include "{OWN}"\n'
        + "".join(f"static_assert({name} == {number});\n" for name, number in numbers)
    )
    compiler = ["g++", "-std=c++20", "-fsyntax-only", "-w", "-isystem", include, str(unit)]
    compiled = subprocess.run(compiler, capture_output=True, text=True, check=False)
    assert compiled.returncode == 0, compiled.stderr


@pytest.mark.parametrize("module", ["corro.tensorflow", "horovod.tensorflow"])
def test_without_tensorflow_one_line_says_what_to_install(module: str) -> None:
    code = f"import {module}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    last = done.stderr.strip().splitlines()[-1]
    assert last == (
        "ModuleNotFoundError: corro.tensorflow needs TensorFlow, which is not installed here:"
        " pip install tensorflow"
    )


def test_an_old_tensorflow_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tensorflow.py").write_text("__version__ = '2.11.1'\n")
    done = subprocess.run(
        [sys.executable, "-c", "import corro.tensorflow"],
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr.strip().splitlines()[-1] == (
        "ImportError: corro.tensorflow needs TensorFlow 2.12 or newer, and 2.11.1 is installed"
        " here: pip install --upgrade tensorflow"
    )
