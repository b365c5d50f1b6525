"""Fixtures of TensorFlow's tests, which run on every rank of a job at once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import horovod.tensorflow as hvd


@pytest.fixture(scope="session", autouse=True)
def job() -> Iterator[None]:
    """Joins the job before the first test and leaves it after the last."""
    hvd.init(process_sets="dynamic")
    yield
    hvd.shutdown()


@pytest.fixture(params=["eager", "graph"])
def run(request: pytest.FixtureRequest):  # type: ignore[no-untyped-def]
    """Returns what calls a function eagerly, or as a tf.function."""
    import tensorflow as tf

    if request.param == "eager":
        return lambda function, *arguments: function(*arguments)
    return lambda function, *arguments: tf.function(function)(*arguments)
