"""horovodrun: its options, its file, and jobs that it starts."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest

from horovod.runner.common.util.hosts import (
    get_host_assignments,
    parse_host_files,
    parse_hosts,
    under_one_name,
)
from horovod.runner.launch import command_of
from horovod.runner.options import parse_args, variables_of

FILE = """\
controller: gloo
params:
  fusion_threshold_mb: 32
  hierarchical_allreduce: true
autotune:
  enabled: true
  log_file: tuning.txt
stall_check:
  enabled: false
logging:
  level: INFO
  with_timestamp: true
"""

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    def start(*arguments: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [Path(sys.executable).with_name("horovodrun"), *map(str, arguments)],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    return start


# -- options --------------------------------------------------------------------------------------


def variables(*options: str) -> dict[str, str]:
    return variables_of(parse_args(["-np", "2", *options]))


def test_the_stall_check_is_the_launchers_line() -> None:
    def command(*options: str) -> list[str]:
        return command_of(parse_args(["-np", "2", *options, "python", "x.py"]))

    assert "--long-wait" not in command()
    late = command("--stall-check-warning-time-seconds", "30")
    assert late[late.index("--long-wait") + 1] == "30"
    never = command("--no-stall-check", "--stall-check-warning-time-seconds", "30")
    assert never[never.index("--long-wait") + 1] == "0"


def test_options_are_variables_of_the_ranks() -> None:
    assert variables() == {}
    assert variables(
        "--fusion-threshold-mb", "10", "--cycle-time-ms", "20", "--cache-capacity", "512",
        "--hierarchical-allreduce", "--no-torus-allreduce", "--log-level", "DEBUG",
        "--stall-check-warning-time-seconds", "10", "--stall-check-shutdown-time-seconds", "20",
        "--gloo-timeout-seconds", "60", "--log-without-timestamp", "--no-stall-check",
        "--network-interface", "eth0", "--network-interface", "eth1",
    ) == {
        "HOROVOD_FUSION_THRESHOLD": str(10 << 20),
        "HOROVOD_CYCLE_TIME": "20.0",
        "HOROVOD_CACHE_CAPACITY": "512",
        "HOROVOD_HIERARCHICAL_ALLREDUCE": "1",
        "HOROVOD_TORUS_ALLREDUCE": "0",
        "HOROVOD_LOG_LEVEL": "DEBUG",
        "HOROVOD_STALL_CHECK_TIME_SECONDS": "10",
        "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "20",
        "HOROVOD_GLOO_TIMEOUT_SECONDS": "60",
        "HOROVOD_LOG_HIDE_TIME": "1",
        "HOROVOD_STALL_CHECK_DISABLE": "1",
        "NCCL_SOCKET_IFNAME": "eth0,eth1",
    }  # fmt: skip


FLAGS = """
--version --check-build --disable-cache --start-timeout=30 --network-interfaces=lo
--network-interface=lo --output-filename=out --verbose --ssh-port=22 --ssh-identity-file=key
--fusion-threshold-mb=1 --cycle-time-ms=1 --cache-capacity=1 --hierarchical-allreduce
--no-hierarchical-allreduce --hierarchical-allgather --no-hierarchical-allgather --torus-allreduce
--no-torus-allreduce --autotune --no-autotune --autotune-log-file=log --autotune-warmup-samples=1
--autotune-steps-per-sample=1 --autotune-bayes-opt-max-samples=1
--autotune-gaussian-process-noise=0.5 --min-np=1 --min-num-proc=1 --max-np=2 --max-num-proc=2
--slots-per-host=1 --elastic-timeout=60 --reset-limit=1 --timeline-filename=t.json
--timeline-mark-cycles --no-timeline-mark-cycles --no-stall-check --stall-check
--stall-check-warning-time-seconds=1 --stall-check-shutdown-time-seconds=2 --mpi-threads-disable
--no-mpi-threads-disable --mpi-args=-x --tcp --binding-args=-x --num-nccl-streams=1
--thread-affinity=0 --gloo-timeout-seconds=30 --log-level=WARNING --log-with-timestamp
--log-without-timestamp --log-hide-timestamp --no-log-hide-timestamp -prefix-timestamp
--prefix-output-with-timestamp --hosts=a:1 --hostfile=f --host-discovery-script=s --gloo --mpi
--jsrun -v -cb
"""


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("flag", FLAGS.split())
def test_every_flag_of_horovods_is_taken(flag: str) -> None:
    args = parse_args(["-np", "2", flag, "program", flag, "--its-own"])
    assert args.command == ["program", flag, "--its-own"]


def test_flags_with_a_space_behind_them_and_short_ones() -> None:
    line = "--num-proc 2 -H a:1,b:1 -p 22 -i key --blacklist-cooldown-range 1 10 x"
    args = parse_args(line.split())
    assert (args.num_proc, args.hosts, args.ssh_port, args.command) == (2, "a:1,b:1", 22, ["x"])
    assert parse_args(["-np", "2", "-hostfile", "f", "x"]).hostfile == "f"


def test_what_needs_another_option_is_nothing_without_it() -> None:
    assert variables("--autotune-warmup-samples", "1", "--timeline-mark-cycles") == {}
    assert variables("--autotune", "--autotune-warmup-samples", "1") == {
        "HOROVOD_AUTOTUNE": "1",
        "HOROVOD_AUTOTUNE_WARMUP_SAMPLES": "1",
    }
    assert variables("--timeline-filename", "/t.json", "--timeline-mark-cycles") == {
        "HOROVOD_TIMELINE": "/t.json",
        "HOROVOD_TIMELINE_MARK_CYCLES": "1",
    }


def test_the_file_counts_where_the_command_line_says_nothing(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(FILE)
    args = parse_args(["-np", "2", "--fusion-threshold-mb", "1", "--config-file", str(file)])
    assert args.use_gloo
    assert variables_of(args) == {
        "HOROVOD_FUSION_THRESHOLD": str(1 << 20),
        "HOROVOD_HIERARCHICAL_ALLREDUCE": "1",
        "HOROVOD_AUTOTUNE": "1",
        "HOROVOD_AUTOTUNE_LOG": "tuning.txt",
        "HOROVOD_STALL_CHECK_DISABLE": "1",
        "HOROVOD_LOG_LEVEL": "INFO",
        "HOROVOD_LOG_HIDE_TIME": "0",
    }


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("params:\n  fusion_treshold_mb: 1\n", "did you mean params.fusion_threshold_mb"),
        ("controller: ucx\n", "gloo or mpi, not 'ucx'"),
        ("- 1\n", "expected sections"),
        ("autotune:\n  enabled: maybe\n", "autotune.enabled: true or false is needed"),
        ("stall_check:\n  enabled: [1]\n", "stall_check.enabled: true or false is needed"),
        ("params: [1\n", "config.yaml: no YAML: while parsing"),
        ("params:\n  cycle_time_ms: fast\n", "params.cycle_time_ms: a number is needed"),
    ],
)
def test_a_file_that_is_wrong(tmp_path: Path, run: Run, content: str, text: str) -> None:
    (tmp_path / "config.yaml").write_text(content)
    job = run("-np", 1, "--config-file", "config.yaml", "true")
    assert job.returncode == 2
    assert text in job.stderr
    assert len(job.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    "option", ["--fusion-threshold-mb=-1", "--autotune-gaussian-process-noise=1.5"]
)
def test_values_out_of_range(option: str) -> None:
    with pytest.raises(ValueError, match="must be"):
        parse_args(["-np", "2", option])


def test_log_hide_timestamp_is_deprecated() -> None:
    with pytest.warns(DeprecationWarning, match="--log-with-timestamp"):
        assert variables("--log-hide-timestamp") == {"HOROVOD_LOG_HIDE_TIME": "1"}


def test_it_becomes_a_corro_run() -> None:
    args = parse_args(
        [
            "-np",
            "3",
            "-H",
            "a:2,b:1",
            "-p",
            "2222",
            "-i",
            "key",
            "--verbose",
            "python",
            "x.py",
            "-v",
        ]
    )
    program, *words = command_of(args)
    assert Path(program).name == "corro"
    assert words[:8] == ["run", "-np", "3", "--show", "streams", "-H", "a:2,b:1", "--rsh"]
    assert words[8].endswith("-p 2222 -i key")
    assert words[9:] == ["--verbose", "--", "python", "x.py", "-v"]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("python",), "say how many ranks"),
        (("-np", 2), "no program"),
        (("-np", 2, "A=1"), "no program"),
        (("-np", 2, "--reset-limit", 1, "x"), "for elastic jobs"),
        (("-np", 2, "--min-np", 1, "--slots-per-host", 1, "x"), "that a script discovers"),
        (("-np", 2, "--mpi", "x"), "no MPI"),
        (("-np", 2, "-H", "a", "x"), "Invalid host input"),
        (("-np", 5, "-H", "a:2,b:2", "x"), "more processes (5) than there are available slots (4)"),
        (("-np", 2, "-i", "a key", "x"), "without spaces"),
        (("-np", 2, "--config-file", "none.yaml", "x"), "none.yaml"),
    ],
)
def test_what_it_refuses_is_one_line(run: Run, arguments: tuple[object, ...], text: str) -> None:
    job = run(*arguments)
    assert job.returncode == 2
    assert job.stderr.startswith("horovodrun: ")
    assert text in job.stderr
    assert len(job.stderr.splitlines()) == 1


def test_ranks_fill_hosts_in_their_order(tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    file.write_text("a slots=1  # small\n\nb slots=2\n")
    hosts = parse_hosts(parse_host_files(str(file)))
    places = [
        (s.hostname, s.rank, s.local_rank, s.cross_rank, s.size, s.local_size, s.cross_size)
        for s in get_host_assignments(hosts, 3)
    ]
    assert places == [("a", 0, 0, 0, 3, 1, 2), ("b", 1, 0, 1, 3, 2, 2), ("b", 2, 1, 0, 3, 2, 1)]
    assert len(get_host_assignments(hosts, 1, 2)) == 2


def test_addresses_of_ipv6_are_hosts(tmp_path: Path) -> None:
    """In brackets, as `corro run -H` reads them."""
    hosts = parse_hosts("[::1]:2,[fe80::7%eth0]:1,10.0.0.7:1")
    assert [(host.hostname, host.slots) for host in hosts] == [
        ("::1", 2),
        ("fe80::7%eth0", 1),
        ("10.0.0.7", 1),
    ]
    file = tmp_path / "hosts"
    file.write_text("fe80::7 slots=2\n[::1]\n")
    assert parse_host_files(str(file)) == "[fe80::7]:2,[::1]:1"
    for wrong in ("::1:2", "[::1]", "[]:2", "[a b]:1", "a:1 ", "a:1\n"):
        with pytest.raises(ValueError, match="Invalid host input"):
            parse_hosts(wrong)


def test_this_host_is_one_host_whatever_its_names() -> None:
    hosts = parse_hosts("a:1,127.0.0.1:2,[fe80::7]:1,localhost:3,a:2")
    assert under_one_name(hosts) == "a:3,127.0.0.1:5,[fe80::7]:1"
    assert under_one_name(parse_hosts("a:1,b:2")) == "a:1,b:2"


def test_ranks_on_an_address_of_ipv6(run: Run) -> None:
    job = run("-np", 2, "-H", "[::1]:2", sys.executable, "-c", "print('here')")
    assert job.returncode == 0, job.stderr
    assert job.stdout.count("<stdout>:here") == 2


# -- jobs -----------------------------------------------------------------------------------------

SHOWS = """\
import os, sys
names = "RANK SIZE LOCAL_RANK LOCAL_SIZE CROSS_RANK CROSS_SIZE".split()
print(*[os.environ["HOROVOD_" + name] for name in names])
print(os.environ["HOROVOD_HOSTNAME"] != "", os.environ["PYTHONUNBUFFERED"])
print(os.environ["HOROVOD_CYCLE_TIME"], file=sys.stderr)
"""


def test_a_job_has_horovods_variables_and_prefixes(run: Run) -> None:
    job = run("-np", 2, "--gloo", "--cycle-time-ms", 7, sys.executable, "-c", SHOWS)
    assert job.returncode == 0, job.stderr
    assert sorted(job.stdout.splitlines()) == [
        "[0]<stdout>:0 2 0 2 0 1",
        "[0]<stdout>:True 1",
        "[1]<stdout>:1 2 1 2 0 1",
        "[1]<stdout>:True 1",
    ]
    assert sorted(line for line in job.stderr.splitlines() if line[0] == "[") == [
        "[0]<stderr>:7.0",
        "[1]<stderr>:7.0",
    ]


def test_output_goes_to_files_and_has_the_time(run: Run, tmp_path: Path) -> None:
    output = ("--output-filename", "out", "-prefix-timestamp")
    job = run("-np", 2, *output, sys.executable, "-c", "print('hello')")
    assert job.returncode == 0, job.stderr
    lines = sorted(job.stdout.splitlines(), key=lambda line: line.partition("[")[2])
    for rank, line in enumerate(lines):
        day, _, rest = line.partition("[")
        datetime.strptime(day, "%a %b %d %H:%M:%S %Y")  # ValueError if it is no such time.
        assert rest == f"{rank}]<stdout>:hello"
        assert (tmp_path / f"out/rank.{rank}/stdout").read_text() == line + "\n"
        assert (tmp_path / f"out/rank.{rank}/stderr").read_text() == ""


def test_words_in_front_are_assigned_as_by_a_shell(run: Run) -> None:
    program = "import os; print(*(os.environ[name] for name in ('ANSWER', 'MORE', 'EMPTY', 'OLD')))"
    words = ("ANSWER=1", "ANSWER=4 2", "MORE=a", "MORE+=b=c", "EMPTY=", "OLD=new")
    job = run("-np", 1, *words, sys.executable, "-c", program, "LATER=1")
    assert job.stdout.splitlines() == ["[0]<stdout>:4 2 ab=c  new"], job.stderr


def test_a_path_in_front_finds_the_program(run: Run, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "mine").write_text('#!/bin/sh\necho found "$1"\n')
    (tmp_path / "bin" / "mine").chmod(0o755)
    job = run("-np", 1, f"PATH={tmp_path / 'bin'}:/usr/bin:/bin", "mine", "&&")
    assert job.stdout.splitlines() == ["[0]<stdout>:found &&"], job.stderr


@pytest.mark.parametrize(
    ("words", "status", "printed"),
    [
        (["exit", "3"], 3, []),
        (["eval", "cd / && pwd"], 0, ["[0]<stdout>:/"]),
        (["A=5", "exec", "sh", "-c", "echo $A"], 0, ["[0]<stdout>:5"]),
    ],
)
def test_a_builtin_is_a_command(run: Run, words: list[str], status: int, printed: object) -> None:
    job = run("-np", 1, *words)
    assert (job.returncode, job.stdout.splitlines()) == (status, printed), job.stderr


def test_variables_of_the_launcher_count_in_front_of_the_program() -> None:
    command = command_of(parse_args(["-np", "2", "HOROVOD_STALL_CHECK_TIME_SECONDS=30", "x"]))
    assert command[command.index("--long-wait") + 1] == "30"


def test_a_rank_that_fails_ends_the_job_with_its_status(run: Run) -> None:
    program = "import os, sys, time; os.environ['RANK'] == '1' and sys.exit(3); time.sleep(600)"
    job = run("-np", 2, sys.executable, "-c", program)
    assert job.returncode == 3
    assert "rank 1 failed" in job.stderr


def test_a_script_of_horovods(run: Run, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import horovod.torch as hvd, torch\nhvd.init()\n"
        "print(hvd.allreduce(torch.ones(1), op=hvd.Sum).item())\n"
    )
    job = run("-np", 2, "-H", "localhost:2", sys.executable, "train.py")
    assert job.returncode == 0, job.stderr
    assert sorted(job.stdout.splitlines()) == ["[0]<stdout>:2.0", "[1]<stdout>:2.0"]


BUILD = """
Horovod v0.28.1:

Available Frameworks:
    [ ] TensorFlow
    [X] PyTorch
    [ ] MXNet

Available Controllers:
    [ ] MPI
    [X] Gloo

Available Tensor Operations:
    [ ] NCCL
    [ ] DDL
    [ ] CCL
    [ ] MPI
    [X] Gloo
"""


def test_check_build_has_horovods_layout(run: Run) -> None:
    job = run("--check-build")
    assert job.returncode == 0
    block, _, tried = job.stdout.partition("\nTried here:\n")
    assert block.strip("\n") == BUILD.strip("\n")
    assert re.search(r"^    PyTorch 2\.\S+: works$", tried, re.MULTILINE)
    assert re.search(r"^    TensorFlow: does not work: .*pip install", tried, re.MULTILINE)
    assert run("--version").stdout == "0.28.1\n"
