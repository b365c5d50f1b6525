"""docs/kubernetes.md as a reader would follow it, from an empty cluster."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import ROOT, Plane, start_plane, stop_plane
from operator_process import PROGRAM
from played_deployment import PlayedDeployment

sys.path.insert(0, str(ROOT / "tools"))

import run_docs

PAGE = ROOT / "docs" / "kubernetes.md"


@pytest.fixture
def empty_plane() -> Iterator[Plane]:
    folder = start_plane()
    yield Plane(folder)
    stop_plane(folder)


@pytest.mark.timeout(900)
def test_the_page_holds(empty_plane: Plane, tmp_path: Path) -> None:
    config = empty_plane.folder / "admin.kubeconfig"
    variables = {
        "KUBECONFIG": str(config),
        "HOME": str(tmp_path),  # Where kubectl keeps what it has discovered.
        "PATH": f"{empty_plane.folder / 'bin'}:/usr/bin:/bin",
        "SOURCES": str(ROOT),
    }
    with PlayedDeployment(empty_plane, tmp_path) as deployment:
        try:
            blocks = run_docs.check(PAGE, run_docs.Kube(variables))
        except run_docs.DocumentError as error:
            jobs = empty_plane.kubectl("get", "mpijobs,corrojobs", "-A", "-o", "yaml")
            pytest.fail(f"{error}\n{deployment.failure}\n{deployment.log()[-10:]}\n{jobs}")
        assert not deployment.failure
        assert not [line for line in deployment.log() if line["level"] == "error"]
    assert blocks > 25


def test_the_page_has_every_flag_and_reason() -> None:
    """Those of the program's help, and of the sources that decide."""
    page = PAGE.read_text()
    shown = subprocess.run([PROGRAM, "operator", "--help"], capture_output=True, check=True)
    flags = set(re.findall(r"--[a-z-]+", shown.stdout.decode())) - {"--help"}
    assert len(flags) > 10
    assert {flag for flag in flags if f"`{flag}" not in page} == set()
    sources = (ROOT / "cpp" / "src" / "kube" / "reconcile").glob("*.cc")
    text = "\n".join(path.read_text() for path in sources if "_test" not in path.name)
    reasons = set(re.findall(r'(?:block\(|return \{|"Failed", )"([A-Z]\w+)",', text))
    assert len(reasons) > 8
    assert {reason for reason in reasons if f"`{reason}`" not in page} == set()
