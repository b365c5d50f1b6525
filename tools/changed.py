"""Which files a change touches, as git knows it."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def git(*words: str) -> str:
    """Returns what a git command in the tree prints; "" if there is no git, or it fails."""
    try:
        done = subprocess.run(
            ["git", *words], cwd=ROOT, capture_output=True, text=True, check=False
        )
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def origin() -> str:
    """Returns the commit that the work began at: where it left the branch that it came from, or
    the commit before the last one; "" without git."""
    for branch in ("origin/HEAD", "@{upstream}", "origin/main"):
        if base := git("merge-base", "HEAD", branch):
            return base
    return git("rev-parse", "HEAD~1")


def changed_since(revision: str) -> list[str]:
    """Returns the paths that differ from the revision, those of new files and of files that are
    gone among them; both of a file that was moved."""
    names = git("diff", "--name-only", "--no-renames", revision).splitlines() if revision else []
    names += git("ls-files", "--others", "--exclude-standard").splitlines()
    return sorted(set(names))
