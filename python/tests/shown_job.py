"""What a program reads from the dashboard of a running job."""

from __future__ import annotations

import json
import re
import subprocess
import urllib.request
from pathlib import Path
from typing import Any

from said import PATIENCE

ADDRESS = re.compile(r"dashboard  (http://\S+)/\?token=([0-9a-f]{64})\n")


def asked(program: Path, launcher: int) -> str:
    """What `corro dash` prints of the job of this launcher; "" if it does not run."""
    words = [str(program), "dash", str(launcher)]
    run = subprocess.run(words, capture_output=True, timeout=PATIENCE, check=False, text=True)
    assert run.returncode == 0 or "no such file" in run.stderr, run.stderr
    return run.stdout


def job_at(printed: str) -> dict[str, Any]:
    """The job as JSON, from the address that was printed."""
    found = ADDRESS.search(printed)
    assert found, printed
    bearer = {"Authorization": f"Bearer {found.group(2)}"}
    request = urllib.request.Request(found.group(1) + "/api/job", headers=bearer)
    with urllib.request.urlopen(request, timeout=PATIENCE) as reply:
        job: dict[str, Any] = json.loads(reply.read())
    return job
