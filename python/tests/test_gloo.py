"""Scripts that say "gloo", or name no back end, train on corro below `corro run`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from conftest import Launch

SAYS = 'corro: torch\'s back end "gloo" is corro here; CORRO_TORCH=keep keeps Gloo'

# What each group is, and that DDP, which asks for its name, works with it.
SCRIPT = """
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group({name})
torch.manual_seed(dist.get_rank())
model = DistributedDataParallel(torch.nn.Linear(4, 1))
model(torch.full((2, 4), 1.0 + dist.get_rank())).sum().backward()
assert (model.module.weight.grad == 3).all(), model.module.weight.grad
other = dist.new_group(backend="gloo")
total = torch.ones(3)
dist.all_reduce(total, group=other)
assert (total == 2).all()
dist.monitored_barrier(other)
what = [type(one._get_backend(torch.device("cpu"))).__name__ for one in (dist.group.WORLD, other)]
print("groups", dist.get_backend(), dist.get_backend(other), *what)
dist.destroy_process_group()
"""


def groups(launch: Launch, tmp_path: Path, name: str, **env: str) -> tuple[str, int]:
    """Returns what a rank says of its groups, and how often the launcher's screen has the line."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(name=name))
    output = launch(str(script), **env).check().output
    told = [line.partition("groups ")[2] for line in output.splitlines() if "groups " in line]
    assert len(told) == 2
    assert told[0] == told[1]
    return told[0], output.count(SAYS)


@pytest.mark.parametrize(("name", "back_end"), [("'gloo'", "gloo"), ("", "undefined")])
def test_a_script_for_gloo_runs_on_corro(
    launch: Launch, tmp_path: Path, name: str, back_end: str
) -> None:
    told, lines = groups(launch, tmp_path, name)
    assert told == f"{back_end} gloo CorroBackend CorroBackend"
    assert lines == 1


def test_who_wants_gloo_keeps_it(launch: Launch, tmp_path: Path) -> None:
    told, lines = groups(launch, tmp_path, "'gloo'", CORRO_TORCH="keep")
    assert told == "gloo gloo ProcessGroupGloo ProcessGroupGloo"
    assert lines == 0


def test_who_is_no_rank_of_corro_run_keeps_gloo() -> None:
    text = "import torch.distributed as dist; print('GLOO' in dist.Backend._plugins)"
    command = [sys.executable, "-c", text]
    assert subprocess.run(command, capture_output=True, check=True).stdout == b"False\n"
