"""Mistakes on the command line, and what is printed without starting anything."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

MISTAKES = [
    (["run", "--wrong", "x.py"], "--wrong"),
    (["run"], "no program given"),
    (["run", "-np", "two", "x.py"], " -np two: expected a number of ranks"),
    (["run", "-np", "0", "echo"], "-np 0"),
    (["run", "-np"], " -np: "),
    (["run", "missing.py"], "missing.py: no such file"),
    (["run", "python3", "-u", "missing.py"], "missing.py: no such file in /"),
    (["run", "missing-program"], "no program 'missing-program' on PATH"),
    (["run", "./missing"], "./missing: no such file"),
    (["run", "2", "train.py"], "corro run -np 2"),
    (["run", "--lr", "0.1", "train.py"], "come after the program"),
    (["-np", "2", "train.py"], "corro run -np 2 train.py"),
    (["--show=all", "train.py"], "corro run --show=all train.py"),
    (["run", "--show", "loud", "echo"], "--show"),
    (["run", "-np", "2", "--show", "7", "echo"], "0 to 1"),
    (["run", "--timeout", "soon", "echo"], "--timeout soon"),
    (["run", "--bind", "glue", "echo"], "--bind"),
    (["run", "--dashboard", "8080", "echo"], "--dashboard 8080: give an address of this machine"),
    (["run", "--dashboard", "node7:80", "echo"], "127.0.0.1:0 for any port"),
    (["run", "--env", "NOT_SET_ANYWHERE", "echo"], "NOT_SET_ANYWHERE"),
    (["run", "--env", "CORRO_RANK=1", "echo"], "CORRO_RANK"),
    (["run", "--env", "CORRO_TIMEOUT=soon", "echo"], "CORRO_TIMEOUT=soon: expected a number"),
    (["train.py"], "corro run train.py"),
    (["--wrong"], "--wrong"),
    (["doctor", "x"], "pid"),
    (["completion", "tcsh"], "tcsh"),
    (["help", "nothing"], "nothing"),
]


def corro(program: str, *arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [program, *arguments], capture_output=True, text=True, check=False, timeout=60, **options
    )


@pytest.mark.parametrize(("arguments", "words"), MISTAKES)
def test_a_mistake_gives_one_clear_line_and_status_2(
    program: str, tmp_path: Path, arguments: list[str], words: str
) -> None:
    done = corro(program, *arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert words in done.stderr
    assert list(tmp_path.iterdir()) == [], "nothing was started, nothing is left"


def test_a_program_that_cannot_be_executed_is_one_line(program: str, tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("no program")
    assert "chmod" in corro(program, "run", "./notes", cwd=tmp_path).stderr
    (tmp_path / "notes").chmod(0o755)
    done = corro(program, "run", "-np", "2", "./notes", cwd=tmp_path)
    assert done.returncode == 2
    assert "Exec format error" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_log_directory_that_cannot_be_made_is_one_line(program: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = corro(program, "run", "--log-dir", str(tmp_path / "file" / "x"), "echo")
    assert done.returncode == 2
    assert "--log-dir" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_log_directory_has_files_of_the_last_job_only(program: str, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "rank-9.error.json").write_text("of an old job")
    (tmp_path / "rank-x.log").write_text("mine, too")
    for ranks in ("4", "2"):
        done = corro(program, "run", "-np", ranks, "--log-dir", str(tmp_path), "echo")
        assert done.returncode == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "history.jsonl",
        "notes.txt",
        "rank-0.log",
        "rank-1.log",
        "rank-x.log",
    ]


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["help"], ["help", "run"]])
def test_help_is_printed_to_stdout(program: str, arguments: list[str]) -> None:
    done = corro(program, *arguments)
    assert done.returncode == 0
    assert "Usage: corro" in done.stdout


def test_version(program: str) -> None:
    assert re.fullmatch(r"corro \d+\.\d+\.\d+\n", corro(program, "version").stdout)
    assert corro(program, "--version").stdout == corro(program, "version").stdout


def test_bash_completion_is_valid_and_completes(program: str) -> None:
    script = corro(program, "completion", "bash").stdout
    ask = 'COMP_WORDS=(corro run --sh) COMP_CWORD=2; _corro; echo "${COMPREPLY[@]}"'
    assert corro("/bin/bash", "-c", script + ask).stdout.strip() == "--show"
    ask = 'COMP_WORDS=(corro r) COMP_CWORD=1; _corro; echo "${COMPREPLY[@]}"'
    assert corro("/bin/bash", "-c", script + ask).stdout.strip() == "run"
    ask = 'COMP_WORDS=(corro run --servers ra) COMP_CWORD=3; _corro; echo "${COMPREPLY[@]}"'
    assert corro("/bin/bash", "-c", script + ask).stdout.strip() == "ranks"
    for shell in ("zsh", "fish"):
        text = corro(program, "completion", shell).stdout
        assert "doctor" in text
        assert "timeout" in text


def test_dry_run_prints_hosts_ranks_bindings_and_variables_and_starts_nothing(
    program: str, tmp_path: Path
) -> None:
    done = corro(
        program, "run", "--dry-run", "-np", "3", "--env", "A=1 2", "touch", "started", cwd=tmp_path
    )
    assert done.returncode == 0
    assert "3 ranks" in done.stdout
    assert "command: touch started" in done.stdout
    assert "binding: " in done.stdout
    assert "  A='1 2'" in done.stdout
    assert "  WORLD_SIZE=3" in done.stdout
    for rank in range(3):
        assert re.search(rf"rank {rank} on \S+, processors ", done.stdout)
        assert f"  CORRO_RANK={rank}\n" in done.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "value"), [("SLURM_JOB_NUM_NODES", "4"), ("PET_NNODES", "1:2"), ("PMI_SIZE", "2")]
)
def test_it_does_not_train_alone_where_a_scheduler_announces_more(
    program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    done = corro(program, "run", "-np", "1", "echo", "hi", cwd=tmp_path)
    assert done.returncode == 2
    assert name in done.stderr
    assert done.stderr.count("\n") == 1
    done = corro(program, "run", "--allow-single-node", "-np", "1", "echo", "hi", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "hi\n")


def test_the_page_about_the_launcher_has_every_option(program: str) -> None:
    """In its table, and no other ones."""
    text = corro(program, "run", "--help").stdout
    page = (Path(__file__).parents[3] / "docs/launcher.md").read_text()
    rows = [line.split(" | ")[0] for line in page.splitlines() if line.startswith("| `-")]
    spelt = r"(?<![\w-])--?[A-Za-z][a-z-]*"
    options = {
        o
        for line in text.splitlines()
        if line.startswith("  -")
        for o in line.split()[0].split(",")
    }
    assert options - {"--nproc_per_node"} == set(re.findall(spelt, " ".join(rows))) - {"-np"}
