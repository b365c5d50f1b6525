"""Horovod's names for the variables that horovodrun's options set."""

from __future__ import annotations

import argparse
from collections.abc import MutableMapping

from horovod.runner.options import LOG_HIDE_TIME, STALL_CHECK_DISABLE, TUNING, variables_of

# HOROVOD_FUSION_THRESHOLD = "HOROVOD_FUSION_THRESHOLD", and so on.
globals().update(
    {name: name for name in [*(row.variable for row in TUNING), LOG_HIDE_TIME, STALL_CHECK_DISABLE]}
)


def set_env_from_args(
    env: MutableMapping[str, str], args: argparse.Namespace
) -> MutableMapping[str, str]:
    """Puts into `env` what the options say; what they leave open stays as it is there."""
    env.update(variables_of(args))
    return env
