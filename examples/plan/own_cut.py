"""A cut strategy of one's own, costed beside the planner's: python own_cut.py [MODEL [CLUSTER]]"""

import sys
from itertools import accumulate
from pathlib import Path

import corro
from corro.planner import CutQuestion


class EqualTime:
    """Cuts where the layers so far have taken their stage's share of the time."""

    def cut(self, question: CutQuestion) -> list[int]:
        stages, ends = question.shape.pipeline, list(accumulate(question.seconds))
        shares = [ends[-1] * stage / stages for stage in range(stages)]
        return [sum(end <= share for end in ends) for share in shares]


model = sys.argv[1] if len(sys.argv) > 1 else "gpt3-13b"
cluster = sys.argv[2] if len(sys.argv) > 2 else Path(__file__).with_name("a100_64.yaml")
planned = corro.plan(model, cluster, global_batch=512, pins={"pipeline": 4}, policies=[EqualTime()])
print(planned)
print(f"example: stages={[stage.first_layer for stage in planned.decisions.stages]}")
