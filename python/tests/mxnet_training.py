"""What test_mxnet.py runs on every rank: Horovod's verbs on MXNet's arrays, and a small training.

    mxnet_training.py IMAGES

What does not hold ends the job.
"""

from __future__ import annotations

import gzip
import pickle
import sys
from functools import partial
from pathlib import Path
from typing import Any

import mxnet as mx
import numpy
import pytest

import horovod.mxnet as hvd
from horovod.common.exceptions import HorovodInternalError

BATCH = 32


def check_verbs() -> None:
    rank, size = hvd.rank(), hvd.size()
    total = size * (size + 1) / 2
    mine = mx.nd.ones((2, 3)) * (rank + 1)
    assert (hvd.allreduce(mine, name="mean") == total / size).asnumpy().all()
    assert (hvd.allreduce(mine, average=False) == total).asnumpy().all()
    assert (hvd.allreduce(mine, op=hvd.Max, prescale_factor=2.0) == 2 * size).asnumpy().all()
    assert (mine == rank + 1).asnumpy().all()
    for dtype in ("float16", "float64", "uint8", "int32", "int64"):
        summed = hvd.allreduce(mine.astype(dtype), op=hvd.Sum)
        assert numpy.dtype(summed.dtype) == dtype
        assert (summed.asnumpy() == total).all()

    # MXNet computes in the background: what it still has to do comes first.
    large = mx.nd.dot(mx.nd.ones((500, 500)), mx.nd.ones((500, 500))) * (rank + 1)
    rows = large[1:3]
    assert hvd.allreduce_(rows, op=hvd.Sum) is rows
    assert ((large + 0)[:4, 0].asnumpy() / 500 == [rank + 1, total, total, rank + 1]).all()

    pair = [mx.nd.ones(3) * rank, mx.nd.ones((2, 2), dtype="int32") * (rank + 1)]
    means = hvd.grouped_allreduce(pair, op=hvd.Sum)
    assert [one.asnumpy().sum() for one in means] == [3 * (total - size), 4 * total]
    assert hvd.grouped_allreduce_(pair, op=hvd.Sum, name="pair") is pair
    assert [one.asnumpy().sum() for one in pair] == [3 * (total - size), 4 * total]
    assert hvd.grouped_allreduce([]) == []

    rows_of_all = hvd.allgather(mx.nd.ones((rank + 1, 2)) * rank)
    assert rows_of_all.asnumpy()[:, 0].tolist() == [r for r in range(size) for _ in range(r + 1)]
    assert hvd.broadcast(mine, size - 1).asnumpy().tolist() == [[size] * 3] * 2
    assert hvd.broadcast_(mx.np.ones(2) * rank, 0).asnumpy().tolist() == [0, 0]
    assert isinstance(hvd.allgather(mx.np.ones(2)), mx.np.ndarray)
    each = mx.nd.arange(size) + 10 * rank
    assert hvd.alltoall(each).asnumpy().tolist() == [rank + 10 * r for r in range(size)]
    came, counts = hvd.alltoall(each, splits=mx.nd.ones(size, dtype="int32"))
    assert (came.shape, counts.asnumpy().tolist()) == ((size,), [1] * size)
    assert hvd.broadcast_object({"of": rank}, 1) == {"of": 1}
    assert hvd.allgather_object(rank) == list(range(size))
    evens = hvd.allreduce(mine * 0 + 1.5, op=hvd.Sum, process_set=hvd.global_process_set)
    assert evens.asnumpy()[0, 0] == 1.5 * size


def check_refusals() -> None:
    bfloat16 = numpy.dtype([("bfloat16", numpy.uint16)])
    for tensor, what in (
        (numpy.ones(2), "not a ndarray"),
        (mx.nd.sparse.zeros("row_sparse", (3, 2)), "not a row_sparse one"),
        (mx.nd.ones(2).astype(bfloat16), "astype.'float32'."),
    ):
        with pytest.raises(ValueError, match=what):
            hvd.allreduce(tensor)
    with pytest.raises(HorovodInternalError, match="Mismatched ALLREDUCE tensor shapes"):
        hvd.allreduce(mx.nd.ones(hvd.rank() + 1), name="unequal")


def check_optimizer() -> None:
    """Each rank's gradient is its number; with rate 1 the weight loses their mean."""
    mean = (hvd.size() - 1) / 2
    for options in ({}, {"num_groups": 1, "gradient_predivide_factor": 2.0}):
        sgd = mx.optimizer.SGD(learning_rate=1.0)
        optimizer = hvd.DistributedOptimizer(sgd, **options)
        optimizer.set_learning_rate(0.5)
        assert sgd.lr == 0.5
        weights, gradients = [mx.nd.ones(3)], [mx.nd.ones(3) * hvd.rank()]
        states = [optimizer.create_state_multi_precision(0, weights[0])]
        optimizer.update_multi_precision([0], weights, gradients, states)
        assert numpy.allclose(weights[0].asnumpy(), 1 - 0.5 * mean)
    with pytest.raises(TypeError, match="DistributedTrainer"):
        pickle.dumps(optimizer)

    def step(trainer_of: Any) -> None:
        weight = mx.gluon.Parameter("weight", shape=(3,))
        weight.initialize(mx.init.One())
        optimizer = hvd.DistributedOptimizer(mx.optimizer.SGD(learning_rate=1.0))
        trainer = trainer_of([weight], optimizer)
        with mx.autograd.record():
            loss = (weight.data() * hvd.rank() * 4).sum()
        loss.backward()
        trainer.step(4)
        assert numpy.allclose(weight.data().asnumpy(), 1 - mean)

    step(partial(mx.gluon.Trainer, kvstore=None))
    with pytest.warns(UserWarning, match="DistributedTrainer averages itself"):
        step(hvd.DistributedTrainer)


def load(directory: Path, name: str, header: int) -> Any:
    with gzip.open(directory / f"train-{name}-ubyte.gz") as file:
        return numpy.frombuffer(file.read(), numpy.uint8, offset=header)


def network(seed: int) -> Any:
    mx.random.seed(seed)
    net = mx.gluon.nn.HybridSequential()
    net.add(mx.gluon.nn.Conv2D(8, 5, strides=2, activation="relu"), mx.gluon.nn.Dense(10))
    net.initialize(mx.init.Xavier())
    return net


def train(directory: Path, **options: Any) -> list[float]:
    """Trains on this rank's part of the images, and returns the mean losses of the ranks."""
    images = load(directory, "images-idx3", 16).reshape(-1, 1, 28, 28)[hvd.rank() :: hvd.size()]
    labels = load(directory, "labels-idx1", 8)[hvd.rank() :: hvd.size()]
    net = network(seed=hvd.rank())
    net.hybridize()
    hvd.broadcast_parameters(net.collect_params())  # Most are made by the first forward pass.
    rate = {"learning_rate": 0.05, "momentum": 0.9}
    trainer = hvd.DistributedTrainer(net.collect_params(), "sgd", rate, **options)
    loss_of = mx.gluon.loss.SoftmaxCrossEntropyLoss()
    losses = []
    for begin in range(0, len(images) - BATCH + 1, BATCH):
        x = mx.nd.array(images[begin : begin + BATCH] / 255.0)
        y = mx.nd.array(labels[begin : begin + BATCH])
        with mx.autograd.record():
            loss = loss_of(net(x), y)
        loss.backward()
        trainer.step(BATCH)
        losses.append(float(hvd.allreduce(loss.mean()).asscalar()))
    net(x).wait_to_read()  # From an inference on MXNet has weights in a layout of its own.
    check_equal(net)
    return losses


def check_equal(net: Any) -> None:
    for parameter in net.collect_params().values():
        everyones = hvd.allgather(parameter.data()).asnumpy().reshape(hvd.size(), -1)
        assert (everyones == everyones[0]).all()


def check_broadcast() -> None:
    """Of parameters that have been made; they differ before."""
    net = network(seed=hvd.rank())
    net(mx.nd.ones((1, 1, 28, 28)))
    mine = {name: p.data().asnumpy() for name, p in net.collect_params().items()}
    roots = hvd.broadcast_object(mine, 1)
    hvd.broadcast_parameters(net.collect_params(), root_rank=1, prefix="other.")
    hvd.broadcast_parameters({"array": mx.nd.ones(2)})
    for name, parameter in net.collect_params().items():
        assert (parameter.data().asnumpy() == roots[name]).all()


def main() -> None:
    hvd.init()
    check_verbs()
    check_refusals()
    check_optimizer()
    check_broadcast()
    directory = Path(sys.argv[1])
    plain = train(directory)
    grouped = train(directory, num_groups=2, gradient_predivide_factor=2.0, prefix="grouped.")
    train(directory, compression=hvd.Compression.fp16, prefix="small.")
    assert numpy.allclose(plain, grouped, rtol=1e-2), (plain, grouped)
    if hvd.rank() == 0:
        print("first", plain[0], "last", numpy.mean(plain[-5:]), flush=True)


main()
