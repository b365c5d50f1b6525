"""What reaches the screen and the log files."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import time
from collections import Counter

from .conftest import DEADLINE, Launcher, wait_until

RANK = "import os, sys; rank = int(os.environ['CORRO_RANK'])\n"


def test_equal_lines_are_shown_once_and_others_with_their_rank(launcher: Launcher) -> None:
    script = launcher.script(RANK + "print('same'); print('rank', rank)")
    job = launcher.run("-np", 4, script)
    assert job.process.returncode == 0
    assert Counter(job.lines()) == Counter(
        ["same", "rank 0", "[rank 1] rank 1", "[rank 2] rank 2", "[rank 3] rank 3"]
    )
    for rank in range(4):
        assert job.log(rank) == f"same\nrank {rank}\n".encode()


def test_a_line_of_several_other_ranks_is_counted(launcher: Launcher) -> None:
    script = launcher.script(RANK + "if rank: print('no device')\nelse: print('device')")
    job = launcher.run("-np", 4, script)
    assert sorted(job.lines()) == ["[ranks 1-3] no device (x3 ranks)", "device"]


def test_show_all_errors_and_ranks(launcher: Launcher) -> None:
    script = launcher.script(RANK + "print('out'); print('err', rank, file=sys.stderr)")
    job = launcher.run("-np", 3, "--show", "all", script)
    assert sorted(job.lines()) == ["[rank 0] out", "[rank 1] out", "[rank 2] out"]
    job = launcher.run("-np", 3, "--show", "errors", script)
    assert job.out == b""
    assert sorted(job.err.decode().splitlines()) == ["[rank 1] err 1", "[rank 2] err 2", "err 0"]
    job = launcher.run("-np", 3, "--show", "0", script)
    assert (job.out, job.err) == (b"out\n", b"err 0\n")
    job = launcher.run("-np", 3, "--show", "0,2", script)
    assert sorted(job.lines()) == ["[rank 0] out", "[rank 2] out"]
    for rank in range(3):
        assert f"err {rank}\n".encode() in job.log(rank)


def test_bytes_of_rank_0_arrive_as_they_are(launcher: Launcher) -> None:
    script = launcher.script(
        RANK + "data = bytes(range(256)) * 999 + b'\\r\\n\\r end'\n"
        "if rank == 0: os.write(1, b''); sys.stdout.buffer.write(data)\n"
    )
    job = launcher.run("-np", 2, script)
    expected = bytes(range(256)) * 999 + b"\r\n\r end"
    assert job.out == expected
    assert job.log(0) == expected


def test_a_huge_line_and_a_last_line_without_an_end_lose_nothing(launcher: Launcher) -> None:
    script = launcher.script(RANK + "sys.stdout.write('x' * 5_000_000 + '\\n' + f'end {rank}')")
    job = launcher.run("-np", 2, script)
    assert job.out.count(b"x") >= 5_000_000
    assert b"end 0" in job.out
    assert b"[rank 1] end 1\n" in job.out
    for rank in range(2):
        assert job.log(rank) == b"x" * 5_000_000 + f"\nend {rank}".encode()


def test_a_hundred_thousand_lines_of_each_rank_lose_nothing(launcher: Launcher) -> None:
    script = launcher.script(
        RANK + "for i in range(100_000): sys.stdout.write(f'{i} of rank {rank}\\n')"
    )
    job = launcher.run("-np", 3, script)
    assert job.process.returncode == 0
    shown: dict[int, list[int]] = {0: [], 1: [], 2: []}
    for line in job.lines():
        match = re.fullmatch(r"(?:\[rank \d\] )?(\d+) of rank (\d)", line)
        assert match, line
        shown[int(match[2])].append(int(match[1]))
    for rank in range(3):
        assert shown[rank] == list(range(100_000)), "every line, once, in its order"
        assert job.log(rank).count(b"\n") == 100_000


def test_equal_lines_in_a_flood_are_shown_once(launcher: Launcher) -> None:
    script = launcher.script("for i in range(20_000): print(i)")
    job = launcher.run("-np", 3, script)
    own = [line for line in job.lines() if not line.startswith("[")]
    assert own == [str(i) for i in range(20_000)]
    for rank in range(3):
        assert job.log(rank).count(b"\n") == 20_000


def test_a_worker_may_close_its_output(launcher: Launcher) -> None:
    script = launcher.script(
        RANK + "print('before', flush=True); os.close(1); os.close(2)\n"
        "import time; time.sleep(0.2); os._exit(3 if rank == 1 else 0)"
    )
    job = launcher.run("-np", 2, script)
    assert job.process.returncode == 3
    assert job.lines()[0] == "before"


def test_a_reader_that_goes_away_does_not_stop_the_job(launcher: Launcher) -> None:
    script = launcher.script(
        RANK + "for i in range(50_000): print('line', i)\nopen(f'done-{rank}', 'w')"
    )
    job = launcher.start("-np", 2, script)
    assert job.process.stdout
    job.process.stdout.readline()
    job.process.stdout.close()
    assert job.process.wait(DEADLINE) == 0
    assert job.log(1).count(b"\n") == 50_000


def test_a_stopped_terminal_holds_the_workers_back_and_loses_nothing(launcher: Launcher) -> None:
    script = launcher.script("for i in range(400_000): print('line', i)")
    job = launcher.start("-np", 1, script)
    log = job.logs / "rank-0.log"
    size = -1

    def has_stopped() -> bool:
        nonlocal size
        before, size = size, log.stat().st_size if log.exists() else 0
        time.sleep(0.3)
        return size > 0 and size == before

    wait_until(has_stopped, "the worker is held back")
    assert size < 4_000_000, "nobody reads: nothing is piled up in memory"
    assert job.wait() == 0
    assert job.out.count(b"\n") == 400_000


def test_stdin_goes_to_rank_0_only(launcher: Launcher) -> None:
    script = launcher.script(RANK + "print(rank, repr(sys.stdin.read()))")
    job = launcher.start("-np", 2, script, stdin=subprocess.PIPE)
    job.out, job.err = job.process.communicate(b"hello", timeout=DEADLINE)
    assert sorted(job.lines()) == ["0 'hello'", "[rank 1] 1 ''"]


def on_a_terminal(launcher: Launcher, *arguments: object, env: dict[str, str] | None = None) -> str:
    """Runs a job with a terminal for stdout and stderr; returns what was written to it."""
    master, slave = pty.openpty()
    job = launcher.start(*arguments, env=env, stdout=slave, stderr=slave)
    os.close(slave)
    written = b""
    end = time.monotonic() + DEADLINE
    while time.monotonic() < end:
        ready, _, _ = select.select([master], [], [], 1)
        if not ready:
            continue
        try:
            written += os.read(master, 65536)
        except OSError:
            break
    os.close(master)
    assert job.process.wait(DEADLINE) == 0
    return written.decode()


BAR = (
    RANK
    + "import time\n"
    + "for i in range(30):\n"
    + "    sys.stderr.write(f'\\r{i:3d}% |{rank}|'); sys.stderr.flush()\n"
    + "    if rank == 1 and i == 3: print('a word from rank 1')\n"
    + "    time.sleep(0.06)\n"
    + "sys.stderr.write('\\n'); print('end', sys.stdout.isatty())\n"
)


def test_a_progress_bar_stays_readable_on_a_terminal(launcher: Launcher) -> None:
    written = on_a_terminal(launcher, "-np", 2, launcher.script(BAR))
    assert "|1|" not in written, "the bars of other ranks are not shown"
    assert "end True" in written, "rank 0 has a terminal"
    for i in range(30):
        assert f"\r{i:3d}% |0|" in written
    # The line of rank 1 has a line of its own: the bar is cleared before it and drawn below it.
    before, after = re.split(r"\[rank 1\]\x1b\[0m a word from rank 1\r\n", written)
    assert re.search(r"(\r\x1b\[K|\n)\x1b\[\d+m$", before)
    assert after.startswith((" ", "\r", "end", "\x1b"))


STEPS = """
import time
import corro
corro.init()
for step in range(1, 81):
    corro.log(loss=1.5, step=step, of=160)
    if corro.rank() == 0 and step == 40:
        print("a word")
    time.sleep(0.1)
"""


def test_how_far_the_training_is_stays_below_all_lines_of_a_terminal(launcher: Launcher) -> None:
    script = launcher.script(STEPS)
    written = on_a_terminal(launcher, "-np", 2, script)
    assert re.search(r"\r\x1b\[Kstep \d+ of 160 \[#+\.+\] \d+ %, .* left .*   loss 1\.5", written)
    assert "\r\x1b[Ka word\r\n" in written or written.startswith("a word\r\n")
    assert written.rfind("step ") < written.rfind("\r\x1b[K"), "it is taken back at the end"
    assert "of 160" not in on_a_terminal(launcher, "--quiet", "-np", 2, script)
    assert b"of 160" not in launcher.run("-np", 2, script).err


def test_colours_are_for_terminals_only_and_can_be_switched_off(launcher: Launcher) -> None:
    script = launcher.script(RANK + "print('rank', rank)")
    assert "\x1b[" in on_a_terminal(launcher, "-np", 2, script)
    assert "\x1b[" not in on_a_terminal(launcher, "-np", 2, script, env={"NO_COLOR": "1"})
    assert b"\x1b[" not in launcher.run("-np", 2, script).out


def test_a_worker_sees_the_size_of_the_terminal(launcher: Launcher) -> None:
    script = launcher.script(RANK + "if rank == 0: print(os.get_terminal_size().columns >= 0)")
    assert "True" in on_a_terminal(launcher, "-np", 2, script)


def test_an_output_dir_has_each_ranks_streams_apart(launcher: Launcher) -> None:
    script = launcher.script(RANK + "print('out', rank); print('err', rank, file=sys.stderr)")
    folder = launcher.directory / "new" / "output"
    job = launcher.run("-np", 2, "--output-dir", folder, script)
    assert job.process.returncode == 0
    assert job.lines() == ["out 0", "[rank 1] out 1"]
    for rank in range(2):
        assert (folder / f"rank.{rank}" / "stdout").read_text() == f"out {rank}\n"
        assert (folder / f"rank.{rank}" / "stderr").read_text() == f"err {rank}\n"
        assert job.log(rank) in (
            f"out {rank}\nerr {rank}\n".encode(),
            f"err {rank}\nout {rank}\n".encode(),
        )


def test_an_output_dir_that_cannot_be_made_starts_nothing(launcher: Launcher) -> None:
    folder = launcher.directory / "file" / "output"
    folder.parent.touch()
    job = launcher.run("-np", 2, "--output-dir", folder, "touch", "started")
    assert job.process.returncode == 2
    [line] = job.err.decode().splitlines()
    assert "choose another --output-dir" in line
    assert not (launcher.directory / "started").exists()


def test_a_full_disk_of_the_output_dir_is_one_line(launcher: Launcher) -> None:
    folder = launcher.directory / "output"
    (folder / "rank.1").mkdir(parents=True)
    (folder / "rank.1" / "stdout").symlink_to("/dev/full")
    script = launcher.script("for i in range(20_000): print(i)")
    job = launcher.run("-np", 2, "--output-dir", folder, script)
    assert job.process.returncode == 0
    [line] = job.err.decode().splitlines()
    assert line.startswith("corro: files are incomplete from here on: ")
    assert "rank.1/stdout: No space left on device" in line
    assert job.log(1).count(b"\n") == 20_000


def test_timestamps_stand_in_front_of_prefixes(launcher: Launcher) -> None:
    script = launcher.script("print('a')")
    day = r"[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}"
    for show, prefix in (("all", r" \[rank 0\] "), ("streams", r"\[0\]<stdout>:")):
        folder = launcher.directory / show
        job = launcher.run("-np", 1, "--timestamps", "--show", show, "--output-dir", folder, script)
        [line] = job.lines()
        assert re.fullmatch(day + prefix + "a", line)
        inside = prefix if show == "streams" else " "
        [line] = (folder / "rank.0" / "stdout").read_text().splitlines()
        assert re.fullmatch(day + inside + "a", line)
