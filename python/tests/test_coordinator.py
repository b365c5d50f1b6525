"""A standalone coordinator that dies, is stopped, and is replaced, on real processes."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import etcd_server
import pytest
from coordinators import CORRO, Job
from etcd_server import Etcd
from said import until
from shown_job import asked, job_at

pytestmark = [pytest.mark.faults, pytest.mark.beside]

Start = Callable[..., Job]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Makes a job of two ranks that goes on with one."""
    jobs: list[Job] = []

    def begin(*options: str, store: str = "") -> Job:
        job = Job(tmp_path, store, "-np", "2", "--min-np", "1", *options)
        jobs.append(job)
        return job

    yield begin
    for job in jobs:
        job.end()


def printed_steps(log: str) -> list[int]:
    return [int(step) for step in re.findall(r"at step (\d+)\.", log)]


def gone(pid: int) -> None:
    until(f"the end of process {pid}", lambda: not Path(f"/proc/{pid}").exists())


def test_ranks_step_on_while_nobody_leads_and_the_next_coordinator_goes_on(start: Start) -> None:
    job = start()
    first = job.coordinator(0)
    agents = [job.agent("a"), job.agent("b")]
    first.says("at step 10.", job.logs)
    before = set(job.facts())
    first.kill()
    # Nobody leads at all, and they print meanwhile. What comes at once may still go to the dead.
    alone = job.steps(30)["step"]
    job.steps(40)
    second = job.coordinator(1)
    for agent in agents:
        agent.says("leads in term 2", job.logs)
    job.steps(5)
    job.finish()
    assert second.status() == 0, job.logs()
    assert [agent.status() for agent in agents] == [0, 0], job.logs()
    facts = job.facts()
    assert set(facts) == before, "no process was started again"
    for steps in facts.values():
        assert [fact["step"] for fact in steps] == list(range(1, len(steps) + 1)), "each step once"
        assert {fact["epoch"] for fact in steps} == {0}, "nothing has changed"
    # What was printed while nobody led was kept; a rank's log has it beside what was before.
    printed = printed_steps(second.log())
    assert len(printed) == len(set(printed))
    kept = [step for step in range(alone, len(next(iter(facts.values())))) if step % 10 == 0]
    assert set(kept) <= set(printed), job.logs()
    log = (job.folder / "logs/rank-0.log").read_text()
    assert printed_steps(log)[:1] == [10], "the second coordinator has kept what was there"


def test_browsers_are_shown_the_job_by_whoever_leads(start: Start) -> None:
    job = start()
    first = job.coordinator(0, "--dashboard", "127.0.0.1:0")
    for host in ("a", "b"):
        job.agent(host)
    job.steps(5)
    assert {rank["host"] for rank in job_at(first.log())["ranks"]} == {"a", "b"}
    first.kill()
    second = job.coordinator(1)  # Without the option, but it is asked.
    second.says("leads in term 2", job.logs)
    job.steps(5)
    printed = until("an answer", lambda: asked(CORRO, second.popen.pid), job.logs)
    until("the ranks", lambda: len(job_at(printed)["ranks"]) == 2, job.logs)
    job.finish()
    assert second.status() == 0, job.logs()


def test_a_rank_that_is_killed_while_nobody_leads_is_noticed_by_the_next_one(start: Start) -> None:
    job = start()
    first = job.coordinator(0)
    agents = [job.agent("a"), job.agent("b")]
    job.steps(5)
    victim = job.process_on("b")
    first.kill()
    os.kill(victim, signal.SIGKILL)
    gone(victim)
    second = job.coordinator(1)
    job.size(1)
    job.finish()
    assert second.status() == 0, job.logs()
    assert [agent.status() for agent in agents] == [0, 0], job.logs()
    assert "1 of 2 ranks go on" in second.log()


def test_a_host_that_goes_with_its_coordinator_is_lost(start: Start) -> None:
    job = start()
    first = job.coordinator(0)
    staying, going = job.agent("a"), job.agent("b")
    job.steps(5)
    first.kill()
    going.kill()
    second = job.coordinator(1)
    job.size(1)
    job.finish()
    assert second.status() == 0, job.logs()
    assert staying.status() == 0, job.logs()
    assert "host b was lost" in second.log()


def test_a_host_that_was_lost_comes_back_as_a_new_one(start: Start) -> None:
    job = start("--max-np", "2")
    coordinator = job.coordinator(0)
    job.agent("a")
    going = job.agent("b")
    job.size(2)
    job.steps(5)
    going.kill()
    job.size(1)
    job.agent("b")
    job.size(2)
    job.finish()
    assert coordinator.status() == 0, job.logs()
    assert "host b is there" in coordinator.log()


def test_a_host_that_is_about_to_go_leaves_between_two_steps(start: Start) -> None:
    job = start("--max-np", "2", "--events", "events.jsonl")
    coordinator = job.coordinator(0)
    job.agent("a")
    going = job.agent("b")
    job.size(2)
    job.steps(5)
    leaver = job.process_on("b")
    going.send(signal.SIGTERM)
    assert going.status() == 0, job.logs()
    gone(leaver)
    job.size(1)
    job.agent("b")
    job.size(2)
    job.finish()
    assert coordinator.status() == 0, job.logs()
    assert "1 rank has to leave: host b is about to go" in coordinator.log()
    assert "host b was lost" not in coordinator.log()
    events = [json.loads(line) for line in (job.folder / "events.jsonl").read_text().splitlines()]
    assert [event["cause"] for event in events if event["event"] == "fenced"] == [
        "host b is about to go"
    ]
    steps = [fact["step"] for facts in job.facts().values() for fact in facts]
    assert set(steps) == set(range(1, max(steps) + 1)), "no step is lost"


def test_an_agent_that_has_nothing_ends_when_it_is_asked_to(start: Start) -> None:
    job = start()
    alone = job.agent("a")
    alone.says("coordinator 127.0.0.1")
    alone.send(signal.SIGTERM)
    assert alone.status() == 0, job.logs()


def test_ranks_end_with_an_agent_that_is_asked_to_end_while_nobody_leads(start: Start) -> None:
    job = start()
    coordinator = job.coordinator(0)
    agents = [job.agent("a"), job.agent("b")]
    job.steps(5)
    ranks = [job.process_on("a"), job.process_on("b")]
    # As when a whole job is deleted: its coordinator may end first.
    coordinator.kill()
    for agent in agents:
        agent.send(signal.SIGTERM)
    assert [agent.status() for agent in agents] == [143, 143], job.logs()
    for rank in ranks:
        gone(rank)
    assert "this agent was asked to end: so are its ranks" in agents[0].log()


def test_a_host_that_came_back_is_known_to_the_next_coordinator(start: Start) -> None:
    job = start("--max-np", "2")
    first = job.coordinator(0)
    staying = job.agent("a")
    going = job.agent("b")
    job.size(2)
    going.kill()
    job.size(1)
    back = job.agent("b")
    job.size(2)
    before = set(job.facts())
    first.kill()
    second = job.coordinator(1)
    for agent in (staying, back):
        agent.says("leads in term 2", job.logs)
    job.steps(5)
    job.finish()
    assert second.status() == 0, job.logs()
    assert set(job.facts()) == before, "nobody was started again"


def test_a_coordinator_that_was_stopped_leads_anew_and_keeps_the_ranks(start: Start) -> None:
    job = start()
    coordinator = job.coordinator(0)
    agents = [job.agent("a"), job.agent("b")]
    job.steps(5)
    coordinator.send(signal.SIGSTOP)
    for agent in agents:
        agent.says("nothing was heard of it", job.logs)
    job.steps(5)
    coordinator.send(signal.SIGCONT)
    for agent in agents:
        agent.says("leads in term 2", job.logs)
    job.steps(5)
    job.finish()
    assert coordinator.status() == 0, job.logs()
    assert "did not run for a while" in coordinator.log()
    assert {fact["epoch"] for steps in job.facts().values() for fact in steps} == {0}


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[Etcd]:
    if reason := etcd_server.find_program()[1]:
        pytest.skip(reason)
    folder = tmp_path / "etcd"
    folder.mkdir()
    server = Etcd(folder)
    server.start()
    yield server
    server.kill()


def test_who_was_stopped_stands_by_once_another_one_leads(start: Start, etcd: Etcd) -> None:
    job = start(store=f"etcd://{etcd.address}/job")
    first = job.coordinator(0)
    agents = [job.agent("a"), job.agent("b")]
    job.steps(5)
    second = job.coordinator(1)
    second.says("stands by", job.logs)
    first.send(signal.SIGSTOP)
    for agent in agents:
        agent.says("leads in term", job.logs)
    second.says("leads in term", job.logs)
    first.send(signal.SIGCONT)
    until("the first stands by", lambda: first.log().count("stands by") > 0, job.logs)
    job.steps(5)
    second.kill()
    until("the first leads again", lambda: first.log().count("leads in term") == 2, job.logs)
    job.steps(5)
    job.finish()
    assert first.status() == 0, job.logs()
    assert [agent.status() for agent in agents] == [0, 0], job.logs()
    assert {fact["epoch"] for steps in job.facts().values() for fact in steps} == {0}


def test_a_host_that_was_silent_comes_back_as_a_new_one(start: Start) -> None:
    job = start("--max-np", "2")
    coordinator = job.coordinator(0)
    job.agent("a")
    agent = job.agent("b")
    job.size(2)
    before = job.process_on("b")
    # The agent itself is below the one that was started, which guards it.
    children = Path(f"/proc/{agent.popen.pid}/task/{agent.popen.pid}/children")
    inner = int(children.read_text().split()[0])
    os.kill(inner, signal.SIGSTOP)
    coordinator.says("host b was lost: nothing was heard of it", job.logs)
    job.size(1)
    os.kill(inner, signal.SIGCONT)
    job.size(2)
    gone(before)
    job.finish()
    assert coordinator.status() == 0, job.logs()
    assert "host b is there" in coordinator.log()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_job_that_waits_for_agents(start: Start, number: signal.Signals) -> None:
    job = start()
    coordinator = job.coordinator(0)
    job.agent("a")
    coordinator.says("1 of 2 slots", job.logs)
    standby = job.coordinator(1)
    standby.says("stands by", job.logs)
    coordinator.send(number)
    assert coordinator.status() == standby.status() == 128 + number, job.logs()


def test_agents_with_ranks_of_another_job_are_not_counted(start: Start) -> None:
    job = start()
    coordinator = job.coordinator(0)
    agents = [job.agent("a"), job.agent("b")]
    job.steps(5)
    coordinator.kill()
    other = job.folder / "other"
    other.mkdir()
    job.store, store = str(other), job.store
    stranger = job.coordinator(0)
    for agent in agents:
        agent.says("it has ranks of another job", job.logs)
    stranger.send(signal.SIGTERM)
    assert stranger.status() == 128 + signal.SIGTERM
    job.store = store
    second = job.coordinator(0)
    for agent in agents:
        agent.says("leads in term 2", job.logs)
    job.finish()
    assert second.status() == 0, job.logs()
    assert {fact["epoch"] for steps in job.facts().values() for fact in steps} == {0}


def test_a_record_that_is_none_is_refused_in_one_line(start: Start) -> None:
    job = start()
    (job.folder / "store/record").write_text("garbage")
    coordinator = job.coordinator(0)
    assert coordinator.status() == 2
    assert f"--store {job.store}: its record: " in coordinator.log()


def test_ranks_are_ended_when_nobody_leads_for_too_long(start: Start) -> None:
    job = start()
    coordinator = job.coordinator(0)
    agents = [job.agent(host, "--patience", "8") for host in "ab"]
    job.steps(5)
    coordinator.kill()
    assert [agent.status() for agent in agents] == [75, 75], job.logs()
    assert "nobody has led for 8 s: all ranks of this host are ended" in agents[0].log()
    for pid in job.facts():
        gone(pid)


def test_a_job_that_has_ended_is_not_begun_anew(start: Start) -> None:
    job = start()
    first = job.coordinator(0)
    first.says("leads in term", job.logs)
    job.agent("a")
    job.agent("b")
    standby = job.coordinator(1)
    standby.says("stands by", job.logs)
    job.steps(2)
    job.finish()
    assert first.status() == 0, job.logs()
    assert standby.status() == 0, job.logs()
    assert "has ended with status 0" in standby.log()
    assert len(job.facts()) == 2


def test_two_agents_of_one_name_are_told_so_before_a_job_has_begun(start: Start) -> None:
    job = start()
    coordinator = job.coordinator(0)
    job.agent("a")
    coordinator.says("1 of 2 slots", job.logs)
    twice = job.agent("a", "--patience", "30")
    twice.says("another agent is called a, too: give one of them another --host", job.logs)


def test_strangers_do_not_disturb_a_job(start: Start) -> None:
    job = start()
    coordinator = job.coordinator(0)
    job.agent("a")
    job.agent("b")
    job.steps(2)
    wrong = job.agent("c", "--patience", "8", CORRO_SECRET_FILE=job.secret("another"))
    twice = job.agent("a", "--patience", "8")
    assert (wrong.status(), twice.status()) == (75, 75)
    assert "an agent of host a is there already" in twice.log()
    refusals = re.findall(r"127\.0\.0\.1 is refused: .*same secret", coordinator.log())
    assert len(refusals) == 1, job.logs()
    assert "the same secret" in wrong.log(), job.logs()
    job.steps(2)
    job.finish()
    assert coordinator.status() == 0, job.logs()
    assert {fact["epoch"] for steps in job.facts().values() for fact in steps} == {0}


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["coordinator", "train.py"], "corro coordinator: give --store: where its record is kept"),
        (
            ["coordinator", "--store", "x", "--listen", "127.0.0.1:0", "train.py"],
            "corro coordinator: give -np: so many ranks begin",
        ),
        (
            ["coordinator", "--store", "/no/such", "--listen", "127.0.0.1:0", "-np", "1", "t.py"],
            "'/no/such' is no folder; make it first",
        ),
        (
            ["coordinator", "--store", ".", "--listen", "127.0.0.1:0", "-np", "1", "none.py"],
            "corro coordinator: ",
        ),
        (
            ["agent", "--coordinator", "127.0.0.1:1", "--host", "a b"],
            "--host 'a b': give up to 64 letters",
        ),
        (
            ["coordinator", "--store", ".", "--listen", "nowhere", "-np", "1", "t.py"],
            "--listen: ",
        ),
        (["agent", "--slots", "2"], "corro agent: give --coordinator ADDRESS:PORT"),
        (["agent", "--coordinator", "nowhere"], "nowhere"),
    ],
)
def test_a_mistake_is_one_line(start: Start, words: list[str], line: str) -> None:
    job = start()
    process = job.mistake(words)
    assert process.status() == 2, process.log()
    assert line in process.log(), process.log()
    assert len(process.log().splitlines()) == 1
