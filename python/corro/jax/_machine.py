"""What XLA's programs depend on, beside the functions that they are made of."""

from __future__ import annotations

import hashlib
import os
import platform
from pathlib import Path

import jaxlib.version


def fingerprint() -> str:
    """Returns a short text that is the same where XLA makes the same program of a function."""
    parts = [
        jaxlib.version.__version__,
        os.environ.get("XLA_FLAGS", ""),
        str(os.cpu_count()),  # Programs are cut into as many parts as there are threads.
        *_processor(),
    ]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:8]


def _processor() -> list[str]:
    file = Path("/proc/cpuinfo")
    lines = file.read_text().splitlines() if file.exists() else []
    told = {line for line in lines if line.split("\t")[0] in ("model name", "flags", "Features")}
    return sorted(told) or [platform.machine(), platform.processor()]
