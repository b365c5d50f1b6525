"""The command horovodrun, outside of the package horovod: that refuses to be imported beside a real
Horovod, which this says in a line instead of a traceback.
"""

from __future__ import annotations

import sys


def horovodrun() -> int:
    """Runs the command; what cannot be imported is told in one line."""
    try:
        from horovod.runner.launch import run_commandline
    except ImportError as error:
        print(f"horovodrun: {error}", file=sys.stderr)
        return 2
    return run_commandline()
