"""Runs Keras's tests, under keras_ranks/, inside of jobs: the same ones with each Keras.

Keras 3 with torch is in .venv itself; the others are in .venv-tensorflow and .venv-jax.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from conftest import HERE, Finished, Launch, pass_in_ranks

ROOT = HERE.parents[1]
TENSORFLOW = ROOT / ".venv-tensorflow/bin/python"
JAX = ROOT / ".venv-jax/bin/python"


@dataclass(frozen=True)
class Keras:
    """Where it is, and how it is chosen."""

    python: Path
    variables: dict[str, str]


KERASES = {
    "keras3-tensorflow": Keras(TENSORFLOW, {"KERAS_BACKEND": "tensorflow"}),
    "keras3-torch": Keras(Path(sys.executable), {"KERAS_BACKEND": "torch"}),
    "keras3-jax": Keras(JAX, {"KERAS_BACKEND": "jax"}),
    "tf_keras": Keras(TENSORFLOW, {"TF_USE_LEGACY_KERAS": "1"}),
}
IMAGES = Path("/usr/share/datasets/fashion-mnist")
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3", "CORRO_TEST_IN_RANKS": "1"}


def the(name: str) -> Keras:
    """Returns a Keras; skips the test where its environment was not made."""
    keras = KERASES[name]
    if not keras.python.exists():
        pytest.skip(f"make test-setup makes {keras.python.parents[1].name}")
    return keras


@pytest.mark.apart
@pytest.mark.parametrize(("name", "ranks"), [(name, 2) for name in KERASES] + [("keras3-torch", 1)])
def test_all(launch: Launch, name: str, ranks: int) -> None:
    """With one rank nothing depends on the framework below."""
    keras = the(name)
    pass_in_ranks(launch, "keras_ranks", keras.python, ranks, **keras.variables, **QUIET)


@pytest.mark.apart
@pytest.mark.skipif(not IMAGES.exists(), reason="needs dataset-fashion-mnist")
@pytest.mark.parametrize("back_end", ["tensorflow", "torch", "jax"])
def test_the_example_trains_on_real_images(launch: Launch, back_end: str) -> None:
    keras = the(f"keras3-{back_end}")
    job = launch(
        str(ROOT / "examples/keras_mnist.py"),
        "--images=6000",
        python=keras.python,
        **keras.variables,
        **QUIET,
    ).check()
    found = re.search(
        r"demo: back_end=(\w+) ranks=2 accuracy=([\d.]+) first_loss=([\d.]+) last_loss=([\d.]+)"
        r" apart=([\d.]+)",
        job.output,
    )
    assert found, job.output
    accuracy, first, last, apart = (float(number) for number in found.groups()[1:])
    assert found[1] == back_end
    assert accuracy > 0.6
    assert last < first
    assert apart == 0.0
    assert job.output.count("Epoch 1/2") == 1  # One progress bar.


# One of three ranks is killed in the middle of an epoch. Each commits after each batch. On JAX a
# step that fails has a random seed among its results.
ELASTIC = """
import os, signal
import horovod.keras as hvd
from horovod._keras.framework import keras
import numpy as np

hvd.init()
first = hvd.rank()
layers = [keras.Input((4,)), keras.layers.Dropout(0.3), keras.layers.Dense(1)]
model = keras.Sequential(layers)
model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), "mse")
x = np.ones((64, 4), "float32")

class Killed(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if state.epoch == 1 and batch == 1 and first == 0:
            os.kill(os.getpid(), signal.SIGKILL)

@hvd.elastic.run
def train(state):
    callbacks = [
        hvd.elastic.UpdateEpochStateCallback(state),
        hvd.elastic.CommitStateCallback(state),
        Killed(),
    ]
    model.fit(
        x, x[:, :1], batch_size=16, epochs=3 - state.epoch, verbose=0, callbacks=callbacks
    )

state = hvd.elastic.KerasState(model, epoch=0)
state.register_reset_callbacks([lambda: print("reset with", hvd.size(), flush=True)])
train(state)
weights = np.concatenate([one.ravel() for one in model.get_weights()])
same = np.allclose(weights, np.asarray(hvd.broadcast(weights, 0)))
print("end", hvd.rank(), hvd.size(), state.epoch, same, flush=True)
"""


@pytest.mark.parametrize("name", KERASES)
def test_training_goes_on_without_a_rank_that_is_killed(launch: Launch, name: str) -> None:
    keras = the(name)
    options = ("--min-np", "2")
    job = launch(
        "-c", ELASTIC, python=keras.python, ranks=3, options=options, **keras.variables, **QUIET
    ).check()
    assert job.output.count("reset with 2") == 2
    for rank in range(2):
        assert f"end {rank} 2 3 True" in job.output, job.output


# Rank 1 raises in its third batch, or has fewer batches; it takes long to end.
FEWER = """
import atexit, os, sys, time
os.environ["CORRO_RANK"] == "1" and atexit.register(time.sleep, 60)
import horovod.keras as hvd
from horovod._keras.framework import keras
import numpy as np

hvd.init()
model = keras.Sequential([keras.Input([8]), keras.layers.Dense(1)])
model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.01)), loss="mse")

class Raising(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if sys.argv[1] == "raise" and hvd.rank() == 1 and batch == 2:
            raise KeyError("my mistake")

x = np.ones([32 if sys.argv[1] == "fewer" and hvd.rank() == 1 else 64, 8])
model.fit(x, x[:, :1], batch_size=8, verbose=0, callbacks=[Raising()])
"""


def block_of(job: Finished) -> str:
    """What the launcher says of a failed job, in one line."""
    assert job.code == 1, job.output
    found = re.search(r"^corro: rank .*", job.output, re.MULTILINE | re.DOTALL)
    assert found, job.output
    return " ".join(found[0].split())


# The others say it in one line, which the tests of their front ends see.
GRAPHS = ["keras3-tensorflow", "tf_keras"]


@pytest.mark.apart
@pytest.mark.parametrize("name", GRAPHS)
def test_who_raised_in_a_callback_is_named(launch: Launch, name: str) -> None:
    keras = the(name)
    job = launch("-c", FEWER, "raise", python=keras.python, **keras.variables, **QUIET)
    block = block_of(job)
    assert block.startswith("corro: rank 1 failed "), job.output
    assert "what KeyError: 'my mistake'" in block


@pytest.mark.apart
@pytest.mark.parametrize("name", GRAPHS)
def test_a_rank_with_fewer_batches_is_named_with_what_to_do(launch: Launch, name: str) -> None:
    keras = the(name)
    job = launch("-c", FEWER, "fewer", python=keras.python, **keras.variables, **QUIET)
    block = block_of(job)
    assert re.search(r"what .*rank 1 has left the job", block), job.output
    assert "rank 1 had left without an error" in block
    assert "or join() when it has no more batches" in block


# Each batch of JAX's is computed in the background.
@pytest.mark.apart
def test_batches_that_failed_unseen_end_the_program_with_an_error(launch: Launch) -> None:
    keras = the("keras3-jax")
    job = launch("-c", FEWER, "fewer", python=keras.python, **keras.variables, **QUIET)
    assert "rank 1 had left without an error" in block_of(job)


def last_line(name: str, code: str, **variables: str) -> str:
    """Returns the last line that a program says which has failed."""
    keras = the(name)
    done = subprocess.run(
        [keras.python, "-c", code],
        env={**os.environ, **keras.variables, **QUIET, **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0, done.stdout
    return done.stderr.strip().splitlines()[-1]


@pytest.mark.parametrize("name", KERASES)
def test_without_init_one_line_says_so(name: str) -> None:
    code = """
import horovod.keras as hvd
from horovod._keras.framework import keras
hvd.DistributedOptimizer(keras.optimizers.SGD(0.1))
"""
    assert last_line(name, code) == (
        "ValueError: Horovod has not been initialized; use hvd.init()."
    )


def test_without_tensorflow_its_package_is_not_imported() -> None:
    code = """
import sys
import keras
import horovod.keras as hvd
hvd.init()
model = keras.Sequential([keras.layers.Dense(1)])
model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), "mse")
begin = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
model.fit(keras.ops.ones((4, 2)), keras.ops.ones((4, 1)), verbose=0, callbacks=[begin])
assert "tensorflow" not in sys.modules and "jax" not in sys.modules
sys.exit("none of them")
"""
    assert last_line("keras3-torch", code) == "none of them"


def test_a_back_end_that_cannot_train_is_refused() -> None:
    assert last_line("keras3-torch", "import horovod.keras", KERAS_BACKEND="numpy") == (
        "ImportError: horovod.keras cannot train with Keras's back end numpy: set KERAS_BACKEND to"
        " one of tensorflow, torch, jax before keras is imported"
    )


def test_a_back_end_that_is_not_installed_is_named() -> None:
    assert last_line("keras3-torch", "import horovod.keras", KERAS_BACKEND="tensorflow") == (
        "ModuleNotFoundError: horovod.keras needs Keras's back end, tensorflow, which is not"
        " installed here: pip install tensorflow, or set KERAS_BACKEND to another of tensorflow,"
        " torch, jax"
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "raise ModuleNotFoundError('none', name='keras')",
            "ModuleNotFoundError: horovod.keras needs Keras, which is not installed here: pip"
            " install keras",
        ),
        (
            "__version__ = '2.11.0'",
            "ImportError: horovod.keras needs Keras 2.12 or newer, and 2.11.0 is installed here:"
            " pip install --upgrade keras",
        ),
    ],
)
def test_no_keras_and_an_old_one_are_named(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "keras.py").write_text(text)
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import horovod.keras"
    assert last_line("keras3-torch", code) == says
