"""`corro.parallelize()`: the planner's plan of a model, run by all ranks.

In this order: entry.py begins, resources.py describes the job's machines, planning.py records and
plans, borders.py finds where the model can be cut, stage.py runs one stage of it (stand_ins.py:
what others' layers return; randomness.py: what is drawn), tensor/ divides tensors over ranks,
samples.py cuts batches, slots.py hands tensors on, shares.py sums gradients, trainer.py has the
step. When the world changes, replanning.py asks for another plan, and moving.py moves the training
to it. fit.py trains for whole epochs: batches.py draws them, state.py is what checkpoints hold and
what goes on without a rank,
progress.py the bar.
"""

from corro.torch.parallel.entry import parallelize
from corro.torch.parallel.fit import History, fit
from corro.torch.parallel.state import TrainerState
from corro.torch.parallel.tensor import Call, Split, experts, rule
from corro.torch.parallel.trainer import Trainer

__all__ = [
    "Call",
    "History",
    "Split",
    "Trainer",
    "TrainerState",
    "experts",
    "fit",
    "parallelize",
    "rule",
]
