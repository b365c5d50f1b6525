"""A plane begins and ends without a trace."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from harness import HERE, Plane, start_plane, stop_plane, wait_until


def alive(pid: int) -> bool:
    """Does the process exist? A zombie's end is its parent's to see, so it counts as gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def pids(folder: Path) -> dict[str, int]:
    list_ = folder / "pids"
    lines = list_.read_text().splitlines() if list_.exists() else []
    return {line.split()[0]: int(line.split()[1]) for line in lines}


def test_down_leaves_no_process_and_no_file() -> None:
    folder = start_plane("--nodes", "1")
    processes = pids(folder)
    parts = {"watchdog", "etcd", "apiserver", "controllers", "scheduler", "nodes"}
    assert set(processes) == parts
    assert all(alive(pid) for pid in processes.values())
    stop_plane(folder)
    assert not [name for name, pid in processes.items() if alive(pid)]
    assert not folder.exists()
    stop_plane(folder)  # Once more is fine.


def test_a_plane_ends_with_its_owner() -> None:
    owner = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    folder = start_plane("--nodes", "0", "--owner", str(owner.pid))
    processes = pids(folder)
    assert all(alive(pid) for pid in processes.values())
    owner.communicate(b"\n")
    wait_until(lambda: not folder.exists(), "the folder's end")
    wait_until(lambda: not any(map(alive, processes.values())), "the processes' end")


def test_a_plane_whose_start_is_killed_ends() -> None:
    planes = HERE.parent.parent / "build" / "kube"
    before = set(planes.glob("*"))
    with subprocess.Popen([HERE / "up.sh", "--nodes", "0"], stdout=subprocess.PIPE) as start:
        new = wait_until(
            lambda: [f for f in set(planes.glob("*")) - before if "apiserver" in pids(f)],
            "an API server that starts",
        )
        start.kill()
    processes = pids(new[0])
    wait_until(lambda: not new[0].exists(), "the folder's end")
    wait_until(lambda: not any(map(alive, processes.values())), "the processes' end")


def test_a_plane_ends_after_its_lifetime() -> None:
    folder = start_plane("--nodes", "0", "--lifetime", "25")
    processes = pids(folder)
    wait_until(lambda: not folder.exists(), "the folder's end")
    wait_until(lambda: not any(map(alive, processes.values())), "the processes' end")


def test_down_leaves_a_process_alone_that_got_the_number_of_ours(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        (tmp_path / "pids").write_text(f"etcd {other.pid} 1\n")  # It did not start at tick 1.
        stop_plane(tmp_path)
        assert other.poll() is None
        other.communicate(b"\n")


def test_an_unknown_option_is_refused() -> None:
    command = [HERE / "up.sh", "--nodse", "3"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "unknown option --nodse" in done.stderr


def test_all_programs_say_their_version(plane: Plane) -> None:
    version = plane.api.get("/version")
    assert version["gitVersion"].startswith("v1.36.")
    assert (version["major"], version["minor"]) == ("1", "36")
    shown = plane.kubectl("version", "--client")
    assert version["gitVersion"] in shown


def test_lists_come_through_a_watch(plane: Plane) -> None:
    """Debian's etcd 3.4.23 could not do it: streaming lists need 3.4.31 or 3.5.13."""
    events = plane.api.watch(
        "/api/v1/namespaces",
        "",
        sendInitialEvents="true",
        resourceVersionMatch="NotOlderThan",
    )
    names = set()
    for kind, namespace in events:
        if kind == "BOOKMARK":
            break
        names.add(namespace["metadata"]["name"])
    assert {"default", "kube-system"} <= names
