"""corro.parallelize(): each plan trains as a process does that computes the whole batch at once."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from parallel_training import SAMPLES, SEED, adam, alone, batches, gpt, machines, next_token
from recorded_models import UNet
from torch import Tensor, nn

import corro
import corro.torch
from corro.torch.parallel import Trainer

pytestmark = pytest.mark.usefixtures("job", "one_thread")


def plans() -> list[dict[str, object]]:
    """Plans of this many ranks, as pins: without ZeRO of all shapes, some with each level of it.

    Tensor parallelism is in test_parallel_tensor.py.
    """
    return [
        {
            **{"tensor": 1, "pipeline": stages, "zero": zero},
            **{"micro_batch": size, "recompute": recompute},
        }
        for stages in (1, 2, 4)
        if corro.size() % stages == 0
        for zero in levels(stages)
        for size, recompute in ((1, "none"), (2, "none"), (2, "full"), (4, "full"))
        if SAMPLES // (corro.size() // stages) % size == 0
        if zero == 0 or (size, recompute) == (2, "full" if zero == 3 else "none")
    ]


def levels(stages: int) -> range:
    """Levels of ZeRO that there are with this many stages."""
    return range(1 if stages == corro.size() else 4)


@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_every_plan_gives_the_losses_of_one_process(dropout: float) -> None:
    expected, trained = alone(gpt(dropout), next_token, batches())
    for pins in plans() if dropout else plans()[::3]:  # What drops is harder to get right.
        model = gpt(dropout)
        with corro.parallelize(
            model, adam(model), next_token, batches()[0], machines(), pins=pins
        ) as trainer:
            losses = [trainer.step(batch) for batch in batches()]
        assert losses == pytest.approx(expected, abs=1e-5), pins
        found, wanted = (next_token(each.eval(), batches()[0]).item() for each in (model, trained))
        assert found == pytest.approx(wanted, abs=1e-5), pins


def test_a_small_batch_sends_few_bytes() -> None:
    if corro.size() == 1:
        pytest.skip("one rank sends nothing")
    model = gpt()
    pins = {"pipeline": corro.size(), "micro_batch": 4}
    engine = corro._context.current().engine
    sent = []
    with corro.parallelize(
        model, adam(model), next_token, batches()[0], machines(), pins=pins
    ) as trainer:
        trainer.step(batches()[0])
        for batch in (batches()[0], batches()[0][:1]):
            before = engine.counter("bytes_sent")
            trainer.step(batch)
            sent.append(engine.counter("bytes_sent") - before)
    assert 0 < sent[1] < sent[0] / 4


def test_the_planner_chooses_and_says_why() -> None:
    model = gpt()
    trainer: Trainer = corro.parallelize(model, adam(model), next_token, batches()[0])
    assert trainer.plan.decisions.shape.ranks == corro.size()
    assert "stage 0: " in trainer.why
    assert "step time" in trainer.why
    first = trainer.step(batches()[0])
    assert len(set(corro.allgather_object(first))) == 1
    trainer.close()


def test_a_report_puts_the_plan_beside_what_was_measured() -> None:
    for pins in plans()[:: 1 + corro.size()]:
        model = gpt(tied=False)
        trainer = corro.parallelize(
            model, adam(model), next_token, batches()[0], machines(), pins=pins
        )
        trainer.step(batches()[0])
        assert "no step was measured" in str(trainer.report())
        for batch in batches(3):
            trainer.step(batch)
        report = trainer.report()
        assert report.steps == 3
        assert len(set(corro.allgather_object(str(report)))) == 1
        *parts, step = report.seconds
        assert step.planned == trainer.plan.step == pytest.approx(sum(p.planned for p in parts))
        assert sum(p.measured for p in parts) == pytest.approx(step.measured) != 0
        assert report.drift == step.measured / step.planned - 1
        assert all(each.measured > 0 for each in parts if each.name in ("compute", "update"))
        for stage in report.memory:
            for line in stage:
                # ZeRO 3 is planned with two layers gathered, and has one.
                most, least = (1.1, 0.3) if pins["zero"] == 3 else (1.1, 0.9)
                assert least * line.planned < line.measured < most * line.planned, (pins, line)
        trainer.close()


def test_a_model_that_is_no_chain_is_trained_data_parallel() -> None:
    def squares(model: nn.Module, x: Tensor) -> Tensor:
        return model(x).square().mean()

    x = torch.randn(8, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    torch.manual_seed(SEED)
    expected, _ = alone(UNet(), squares, [x] * 3)
    torch.manual_seed(SEED)
    model = UNet()
    with corro.parallelize(model, adam(model), squares, x, machines()) as trainer:
        assert [trainer.step(x) for _ in range(3)] == pytest.approx(expected, abs=1e-5)


def test_shards_are_one_batch() -> None:
    expected, _ = alone(gpt(), next_token, batches(3))
    model = gpt()
    with corro.parallelize(
        model, adam(model), next_token, batches()[0], machines(), pins={"micro_batch": 1}
    ) as trainer:
        for step, batch in enumerate(batches(3)):
            first, end = (SAMPLES * (corro.rank() + n) // corro.size() for n in (0, 1))
            loss = trainer.step(batch[first:end], sharded=True)
            assert loss == pytest.approx(expected[step], abs=1e-5)


def test_rank_0s_parameters_count_and_others_take_no_memory() -> None:
    expected, _ = alone(gpt(), next_token, batches(2))
    model = gpt()
    if corro.rank():
        with torch.no_grad():
            for each in model.parameters():
                each.zero_()
    trainer = corro.parallelize(
        model, adam(model), next_token, batches()[0], machines(), pins={"pipeline": corro.size()}
    )
    assert [trainer.step(each) for each in batches(2)] == pytest.approx(expected, abs=1e-5)
    sizes = [each.untyped_storage().nbytes() == 4 for each in model.parameters()]
    assert any(sizes) == (corro.size() > 1)
    if corro.size() > 1:
        with pytest.raises(corro.FailedPreconditionError, match=r"call trainer.gather\(\)"):
            model(batches()[0])
        with pytest.raises(corro.FailedPreconditionError, match=r"call trainer.gather\(\)"):
            model.state_dict()
    trainer.gather()
    assert not any(each.untyped_storage().nbytes() == 4 for each in model.parameters())
    trainer.close()


def test_a_users_error_stops_all_ranks() -> None:
    def fails(model: nn.Module, tokens: Tensor) -> Tensor:
        if tokens.device.type != "meta" and not hasattr(tokens, "fake_mode") and corro.rank() == 0:
            raise KeyError("my mistake")
        return next_token(model, tokens)

    model = gpt()
    trainer = corro.parallelize(
        model, adam(model), fails, batches()[0], machines(), pins={"pipeline": corro.size()}
    )
    with pytest.raises(KeyError if corro.rank() == 0 else corro.CorroError, match="my mistake"):
        trainer.step(batches()[0])


def refused(text: str, **changes: Any) -> None:
    model = gpt()
    given = {
        "model": model,
        "optimizer": adam(model),
        "loss": next_token,
        "sample_batch": batches()[0],
        "resources": machines(),
    }
    with pytest.raises((corro.InvalidArgumentError, corro.ResourceExhaustedError), match=text):
        corro.parallelize(**{**given, **changes})


def test_bad_input_is_one_line_on_every_rank() -> None:
    refused("model: a int is no nn.Module", model=3)
    refused("loss: must be a function", loss=None)
    refused("optimizer: has 2 parameters that are not the model's", optimizer=adam(nn.Linear(1, 1)))
    refused("sample_batch: has no tensors", sample_batch=[1, 2])
    refused("loss: must return a tensor of one element", loss=lambda model, x: model(x[:, :-1]))
    if corro.size() > 1:
        last = corro.rank() == corro.size() - 1
        refused("no nn.Module", **({"model": 3} if last else {}))
        refused(f"has 1 device.* {corro.size()} ranks", resources=ONE_DEVICE)
    refused("memory", resources=machines("100 kB"))
    model = gpt()
    trainer = corro.parallelize(model, adam(model), next_token, batches()[0], machines())
    with pytest.raises(corro.InvalidArgumentError, match="has 9 samples; sample_batch had 8"):
        trainer.step(torch.zeros(9, 17, dtype=torch.int64))
    trainer.close()


ONE_DEVICE = {
    "corro_cluster": 1,
    "name": "one",
    "devices": {
        "core": {"memory": "4 GB", "peak": {"f32": "80 GFLOP/s"}, "memory_bandwidth": "10 GB/s"}
    },
    "hosts": [{"name": "localhost", "device": "core", "devices": 1}],
}


@pytest.mark.parametrize("recompute", ["none", "full"])
def test_backward_keeps_as_many_bytes_as_planned(recompute: str) -> None:
    kept: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage.nbytes()
            held.append(tensor)  # So that its memory is not another one's later.
        return tensor

    model, held = gpt(), list[Tensor]()
    pins = {"data": corro.size(), "micro_batch": SAMPLES // corro.size(), "zero": 0}
    with corro.parallelize(
        *(model, adam(model), next_token, batches()[0], machines()),
        pins={**pins, "recompute": recompute},
    ) as trainer:
        trainer.step(batches()[0])
        weights = {each.untyped_storage().data_ptr() for each in model.parameters()}
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            trainer.step(batches()[0])
        planned = trainer.plan.decisions.stages[0].memory.activations
    assert sum(kept.values()) == pytest.approx(planned, rel=0.05)
