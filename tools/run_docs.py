"""Runs the code in the documents, so that none of it is stale.

    tools/run_docs.py [FILE...]

Each document gets an empty folder, with .venv first on PATH. There are as many at a time as there
are processors. A fence says after its language what it is:

    bash run, python run    runs; a failure fails the document
    bash hosts              runs on node1 of three hosts, which are network namespaces with an sshd
                            each; where there can be none, the document's rest is left out
    text output             every line must occur, in this order, in what the last block printed;
                            `...` stands for anything within a line
    ANY file=NAME           is written to NAME, for later blocks to use
    bash norun              is only shown: it would change the machine, or take minutes
    bash kube               runs against a control plane, in tests/kube/test_docs.py; here it is
                            left out with its output, and counted

A block of bash or python without a word is an error: somebody has to decide.
"""

from __future__ import annotations

import atexit
import os
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

from side_by_side import Job, run_side_by_side

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "python" / "tests"))

import netns  # noqa: E402
import ssh  # noqa: E402

FENCE = re.compile(r"^( *)```+(\w+)[ \t]*([^\n`]*)\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
TIMEOUT_S = 120
# What runs, by language.
WORDS = {"bash": ("run", "hosts", "kube"), "python": ("run", "hosts")}


class DocumentError(Exception):
    """A block that is wrong; the message says which and why."""


@dataclass(frozen=True)
class Block:
    line: int
    language: str
    word: str
    text: str


def blocks(document: str) -> Iterator[Block]:
    for match in FENCE.finditer(document):
        line = document.count("\n", 0, match.start()) + 1
        yield Block(line, match[2], match[3].strip(), match[4])


class RefusedError(Exception):
    """Why a document cannot be run here."""


@dataclass
class Kube:
    """A control plane for blocks of `bash kube`, as variables; without one they are left out."""

    environment: dict[str, str] | None = None
    left_out: int = 0

    def enter(self, folder: Path) -> None:
        """Makes the folder one with the parts of the sources that such blocks name."""
        for name in ("deploy", "examples") if self.environment is not None else ():
            (folder / name).symlink_to(ROOT / name)


MAKING_CLUSTER = threading.Lock()


@cache
def cluster() -> tuple[netns.Hosts, ssh.Servers]:
    reason = ssh.refusal()
    if reason:
        raise RefusedError(reason)
    hosts = netns.Hosts(3)
    atexit.register(hosts.end)
    folder = tempfile.TemporaryDirectory(prefix="corro-ssh-")
    atexit.register(folder.cleanup)
    servers = ssh.Servers(hosts, Path(folder.name) / "ssh")
    atexit.register(servers.end)
    return hosts, servers


def run(block: Block, folder: Path, kube: Kube) -> str:
    venv = ROOT / ".venv/bin"
    environment = dict(os.environ)
    if block.word == "kube":
        environment |= kube.environment or {}
    where: list[str] = []
    if block.word == "hosts":
        with MAKING_CLUSTER:
            hosts, servers = cluster()
        environment = servers.environment()
        where = list(hosts.inside(0))
    command = (
        where
        + {
            "bash": ["bash", "-euo", "pipefail", "-c", block.text],
            "python": [str(venv / "python"), "-c", block.text],
        }[block.language]
    )
    environment["PATH"] = f"{venv}:{environment['PATH']}"
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    if done.returncode:
        raise DocumentError(f"exit status {done.returncode}:\n{done.stdout}")
    return done.stdout


def expect(output: str, wanted: str) -> None:
    lines = iter(output.splitlines())
    for want in filter(None, map(str.strip, wanted.splitlines())):
        pattern = ".*".join(map(re.escape, want.split("...")))
        if not any(re.fullmatch(pattern, line.strip()) for line in lines):
            raise DocumentError(f"no line '{want}' (in this order) in:\n{output}")


def run_block(block: Block, folder: Path, output: str | None, kube: Kube) -> str | None:
    """Does what the block says; returns what the next `text output` compares with, if anything."""
    if block.word.startswith("file="):
        (folder / block.word.removeprefix("file=")).write_text(block.text)
    elif (block.language, block.word) == ("bash", "kube") and kube.environment is None:
        kube.left_out += 1
        return None
    elif block.word in WORDS.get(block.language, ()):
        return run(block, folder, kube)
    elif block.word == "output":
        if output is not None:
            expect(output, block.text)
    elif block.language in ("bash", "python") and block.word != "norun":
        raise DocumentError(f"say after ```{block.language} what it is: run, norun or file=NAME")
    return output


def check(path: Path, kube: Kube) -> int:
    """Runs one document; returns how many of its blocks did something."""
    output: str | None = ""
    active = 0
    with tempfile.TemporaryDirectory(prefix="corro-docs-") as folder:
        kube.enter(Path(folder))
        for block in blocks(path.read_text()):
            try:
                output = run_block(block, Path(folder), output, kube)
            except (DocumentError, subprocess.TimeoutExpired) as error:
                raise DocumentError(f"{path}:{block.line}: {error}") from error
            active += block.word not in ("", "norun") and output is not None
    return active


def holds(path: Path) -> bool:
    """Runs one document, and says in one line what came of it; returns whether nothing failed."""
    kube = Kube()
    try:
        active = check(path, kube)
    except DocumentError as error:
        print(f"docs: {error}\n", end="", file=sys.stderr, flush=True)
        return False
    except RefusedError as reason:
        said = f"not run: {reason}"
    else:
        said = f"{active} blocks of code hold"
        if kube.left_out:
            said += f", {kube.left_out} need a control plane: make test-kube"
        elif not active:
            return True
    print(f"docs: {path.name}: {said}\n", end="", flush=True)  # At once, beside other documents.
    return True


def main() -> int:
    named = [Path(name) for name in sys.argv[1:]]
    documents = named or [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]
    # The one with most to run begins first, and none of them is alone at the end.
    documents.sort(key=lambda path: -sum(1 for _ in blocks(path.read_text())))
    jobs = [Job(1, partial(holds, path)) for path in documents]
    held = run_side_by_side(jobs, os.cpu_count() or 1)
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
