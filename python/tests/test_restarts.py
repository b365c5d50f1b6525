"""Ranks that live twice: torchrun starts them again on the store of their last attempt, a program
runs itself again by exec. Real torchrun."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import DEFAULTS, Launch

pytest.importorskip("torch")

PARTS = {
    "corro": """
import corro, corro.numpy

def total():
    corro.init()
    return corro.numpy.allreduce(1.0, corro.Sum)

def end():
    corro.barrier()
""",
    "horovod": """
import torch
import horovod.torch as hvd

def total():
    hvd.init()
    return hvd.allreduce(torch.ones(1), op=hvd.Sum).item()

def end():
    hvd.allreduce(torch.ones(1))
""",
    "process group": """
import torch
import torch.distributed as dist
import corro.torch

def total():
    dist.init_process_group("corro")
    one = torch.ones(1)
    dist.all_reduce(one, group=dist.new_group([0, 1]))
    return one.item()

def end():
    dist.barrier()
    dist.destroy_process_group()
""",
}

# In the first attempt rank 1 never comes, in the second one it ends in the midst.
TWO_RESTARTS = """
import os
attempt, rank = (int(os.environ[name]) for name in ("TORCHELASTIC_RESTART_COUNT", "RANK"))
if attempt == 0 and rank == 1:
    os._exit(1)
print(f"attempt {attempt}: {total()}", flush=True)
if attempt == 1 and rank == 1:
    os._exit(1)
end()
"""


@pytest.mark.parametrize("part", PARTS)
def test_ranks_that_torchrun_starts_again_meet(launch: Launch, tmp_path: Path, part: str) -> None:
    script = tmp_path / "script.py"
    script.write_text(PARTS[part] + TWO_RESTARTS)
    job = launch("--max-restarts=2", str(script), launcher="torchrun").check()
    assert job.output.count("attempt 1: 2.0") == 2
    assert job.output.count("attempt 2: 2.0") == 2


# The host whose rank ended counts a restart, the other one none.
RESTART_ON_ONE_HOST = """
import os
count = os.environ["TORCHELASTIC_RESTART_COUNT"]
first = not os.path.exists("came-" + os.environ["RANK"])
open("came-" + os.environ["RANK"], "w").close()
print(f"{'first' if first else 'second'} life: {total()}, count {count}", flush=True)
if first and os.environ["RANK"] == "1":
    os._exit(1)
end()
"""


def test_hosts_that_count_restarts_differently_meet(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(PARTS["corro"] + RESTART_ON_ONE_HOST)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    agents = [
        subprocess.Popen(
            [
                *(sys.executable, "-m", "torch.distributed.run"),
                *("--nnodes=2", "--nproc-per-node=1", "--max-restarts=1", "--rdzv-backend=c10d"),
                *("--rdzv-id=job", f"--rdzv-endpoint=127.0.0.1:{port}"),
                *(f"--rdzv-conf=is_host={1 - host}", "--local-addr=127.0.0.1", str(script)),
            ],
            cwd=tmp_path,
            env={**os.environ, **DEFAULTS},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for host in range(2)
    ]
    try:
        outputs = [agent.communicate(timeout=100)[0] for agent in agents]
    finally:
        for agent in agents:
            agent.kill()
            agent.wait()
    assert [agent.returncode for agent in agents] == [0, 0], outputs
    assert all("second life: 2.0" in output for output in outputs)


RUNS_ITSELF_AGAIN = """
import os, sys
lives = len(sys.argv)
print(f"life {lives}: {total()}", flush=True)
if lives < 3:
    os.execv(sys.executable, [sys.executable, *sys.argv, "again"])
end()
"""


@pytest.mark.parametrize("part", ["corro", "process group"])
def test_ranks_of_torchrun_that_run_themselves_again_meet(
    launch: Launch, tmp_path: Path, part: str
) -> None:
    script = tmp_path / "script.py"
    script.write_text(PARTS[part] + RUNS_ITSELF_AGAIN)
    job = launch(str(script), launcher="torchrun").check()
    for life in (1, 2, 3):
        assert job.output.count(f"life {life}: 2.0") == 2
