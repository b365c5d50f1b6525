"""killed_in_step.py RANK STEP PROGRAM [ARG...]: runs a program, and kills that rank in a step."""

import os
import runpy
import signal
import sys
from typing import Any

import without_compiler
from torch.optim.optimizer import register_optimizer_step_pre_hook

without_compiler.install()
_, rank, last, program, *arguments = sys.argv
step = 0


def count(*_: Any) -> None:
    global step
    step += 1
    if (os.environ["CORRO_RANK"], step) == (rank, int(last)):
        os.kill(os.getpid(), signal.SIGKILL)


register_optimizer_step_pre_hook(count)
sys.argv[:] = [program, *arguments]
runpy.run_path(program, run_name="__main__")
