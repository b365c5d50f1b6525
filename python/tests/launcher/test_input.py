"""The standard input of rank 0: a terminal's, which ranks cannot read themselves."""

from __future__ import annotations

import os
import pty
import select
import time
from pathlib import Path

from .conftest import DEADLINE, Launcher


def converse(program: str, directory: Path, script: Path, answers: list[tuple[str, str]]) -> str:
    """Runs a job in the foreground of a terminal; types each answer once its question is there."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(directory)
        os.execv(program, [program, "run", "-np", "2", "--log-dir", "logs", str(script)])
    shown, asked = "", 0
    end = time.monotonic() + DEADLINE
    while time.monotonic() < end:
        ready, _, _ = select.select([terminal], [], [], 1)
        if ready:
            try:
                shown += os.read(terminal, 65536).decode()
            except OSError:
                break
        if answers and answers[0][0] in shown[asked:]:
            question, answer = answers.pop(0)
            asked = shown.index(question, asked) + len(question)
            os.write(terminal, answer.encode())
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, shown
    assert not answers, shown
    return shown


def test_input_asks_at_a_terminal(launcher: Launcher) -> None:
    script = launcher.script(
        "import os, sys\n"
        "if os.environ['RANK'] == '0':\n"
        "    name = input('who? ')\n"
        "    rest = sys.stdin.read()\n"
        "    print('hello', name, repr(rest))\n"
    )
    shown = converse(
        launcher.program, launcher.directory, script, [("who? ", "me\n"), ("me", "more\n\x04")]
    )
    assert "hello me 'more\\n'" in shown


def test_a_breakpoint_works_at_a_terminal(launcher: Launcher) -> None:
    script = launcher.script(
        "import os\nsecret = 6 * 7\n"
        "if os.environ['RANK'] == '0':\n    breakpoint()\nprint('after')\n"
    )
    shown = converse(
        launcher.program,
        launcher.directory,
        script,
        [("(Pdb) ", "p secret\n"), ("42", ""), ("(Pdb) ", "c\n")],
    )
    assert "42" in shown
    assert "after" in shown


def test_a_job_in_the_background_of_a_terminal_does_not_take_its_input(launcher: Launcher) -> None:
    script = launcher.script("import os, time\nopen(f'ran-{os.environ[\"RANK\"]}', 'w')\n")
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(launcher.directory)
        job = f"{launcher.program} run -np 2 --log-dir logs {script}"
        text = f"set -m; {job} & read word; echo got $word; wait"
        os.execv("/bin/bash", ["bash", "-c", text])
    os.write(terminal, b"mine\n")
    shown = b""
    end = time.monotonic() + DEADLINE
    while time.monotonic() < end:
        if not select.select([terminal], [], [], 1)[0]:
            continue
        try:
            shown += os.read(terminal, 65536)
        except OSError:
            break
    os.close(terminal)
    os.waitpid(pid, 0)
    assert b"got mine" in shown
    assert len(list(launcher.directory.glob("ran-*"))) == 2
