"""What a shell makes of horovodrun's command.

Horovod quotes each word of the command, puts variables in front, and gives the line to bash. So
no word is expanded or split, and `&&`, `|` and `>` are words as any other. What bash still does is
to take words in front for assignments, and to look for builtins before programs.
"""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Mapping, Sequence

_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\+?)=(.*)", re.DOTALL)
# Those that are of use as a rank's whole command, and have no program of their name.
_BUILTINS = frozenset(
    [
        ".",
        ":",
        "builtin",
        "cd",
        "command",
        "eval",
        "exec",
        "exit",
        "export",
        "source",
        "type",
        "ulimit",
        "umask",
        "unset",
    ]
)


def split_assignments(
    words: Sequence[str], environment: Mapping[str, str]
) -> tuple[dict[str, str], list[str]]:
    """Returns the variables that words in front assign, and the command behind them.

    A value with blanks, which Horovod's quotation marks keep bash from taking for one, is one, too.

    Args:
        words: the command.
        environment: what `NAME+=value` adds to.
    """
    assigned: dict[str, str] = {}
    for number, word in enumerate(words):
        match = _ASSIGNMENT.fullmatch(word)
        if match is None:
            return assigned, list(words[number:])
        name, adds, value = match.groups()
        before = assigned.get(name, environment.get(name, ""))
        assigned[name] = before + value if adds else value
    return assigned, []


def without_builtins(command: list[str], path: str | None) -> list[str]:
    """Returns the command, with bash in front if it is one of bash's builtins and no program."""
    if command[0] not in _BUILTINS or shutil.which(command[0], path=path):
        return command
    return ["bash", "-c", shlex.join(command)]
