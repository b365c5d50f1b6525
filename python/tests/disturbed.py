"""Runs a script as a rank whose servers change: `disturbed.py SCRIPT ...`.

Rank 0 kills server 0 at the 60th push of tables, and has a server added at the 120th.
"""

from __future__ import annotations

import os
import runpy
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from table_worker import server_process

import corro.table

pushes = 0
push = corro.table.Table.push


def disturbed_push(table: corro.table.Table, *arguments: Any) -> None:
    global pushes
    pushes += 1
    if pushes == 60:
        os.kill(server_process(0), signal.SIGKILL)
    if pushes == 120:
        command = [Path(sys.executable).with_name("corro"), "servers", "--add", "1"]
        subprocess.run([*command, os.environ["CORRO_JOB_ID"]], check=True, stdout=sys.stderr)
    push(table, *arguments)


if os.environ.get("CORRO_RANK") == "0":
    corro.table.Table.push = disturbed_push  # type: ignore[method-assign]
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
