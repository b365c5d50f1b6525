"""How long the buffers of works in flight live."""

from __future__ import annotations

import threading
import weakref

import pytest

from corro._calls import Handle, keep_until_done

pytestmark = pytest.mark.torch22


class Work:
    """A work that is done when the test says so."""

    def __init__(self, *, finished: bool = False) -> None:
        self.finished = finished

    def done(self) -> bool:
        return self.finished

    def wait(self, timeout: float | None = None) -> None:
        if timeout is not None:
            raise TimeoutError
        self.finished = True


class Buffers:
    pass


def keep(work: Work) -> weakref.ref[Buffers]:
    """Keeps buffers that nothing else holds."""
    buffers = Buffers()
    keep_until_done(work, buffers)
    return weakref.ref(buffers)


def test_a_wait_lets_go_of_its_buffers_behind_a_work_that_is_stuck() -> None:
    stuck, later = Work(), Work()
    held, freed = keep(stuck), keep(later)
    handle = Handle(later, lambda: None)
    with pytest.raises(TimeoutError):
        handle.wait(0.1)
    assert freed() is not None
    handle.wait()
    assert freed() is None
    assert held() is not None
    Handle(stuck, lambda: None).wait()
    assert held() is None


def test_the_next_work_lets_go_of_all_that_are_done() -> None:
    stuck, dropped = Work(), Work()
    held, freed = keep(stuck), keep(dropped)
    dropped.finished = True
    keep(Work(finished=True))
    assert freed() is None
    assert held() is not None
    Handle(stuck, lambda: None).wait()


def test_two_threads_let_go_of_a_done_work_only() -> None:
    """One thread stands in done() of the first work while another lets go of it."""
    entered, go_on = threading.Event(), threading.Event()

    class Slow(Work):
        def done(self) -> bool:
            if threading.current_thread().name == "slow" and self.finished:
                entered.set()
                go_on.wait(60)
            return self.finished

    first, second = Slow(), Work()
    keep(first)
    held = keep(second)
    thread = threading.Thread(target=lambda: keep(Work(finished=True)), name="slow")
    first.finished = True
    thread.start()
    entered.wait(60)
    keep(Work(finished=True))
    go_on.set()
    thread.join()
    assert held() is not None
    Handle(second, lambda: None).wait()
