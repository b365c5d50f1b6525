"""The one engine of a process, made by init(), and the groups of ranks that it serves."""

from __future__ import annotations

import atexit
import os
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from itertools import count
from operator import index
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol

from corro import _arguments
from corro._membership import End, Membership, is_elastic, is_joiner, patience
from corro.errors import (
    AbortedError,
    AlreadyExistsError,
    CorroError,
    FailedPreconditionError,
    InvalidArgumentError,
)

if TYPE_CHECKING:
    from weakref import ReferenceType, WeakKeyDictionary, WeakSet

    from corro import _native
    from corro._waits import WaitWatch


_WORLD = -1  # The world's number in this process.
_numbers = count(_WORLD - 1, -1)


class Group:
    """Ranks that run operations together, in the order of `ranks`.

    `corro.world()` is the group of all ranks; others come from `new_group`. A group is also valid
    on ranks that are not in it: there `included()` is False and operations raise. So they do
    everywhere once the group's membership epoch is over.
    """

    __slots__ = ("__weakref__", "_index", "_is_over", "_native", "_number", "ranks")

    def __init__(self, ranks: Sequence[int], native: _native.Group | None) -> None:
        self.ranks = tuple(ranks)
        self._index = {rank: index for index, rank in enumerate(self.ranks)}
        self._native = native
        self._number: int | None = None
        self._is_over = False

    def size(self) -> int:
        """Returns the number of ranks in this group."""
        return len(self.ranks)

    def rank(self) -> int:
        """Returns this process's rank within the group."""
        return self.native.rank

    def included(self) -> bool:
        """Returns whether this process is in the group."""
        return self._native is not None

    def index_of(self, rank: int) -> int:
        """Returns the position in this group of a rank of the world."""
        try:
            return self._index[rank]
        except (KeyError, TypeError):  # A list, say, is no key.
            raise InvalidArgumentError(
                f"rank {rank!r} is not in the group {list(self.ranks)}"
            ) from None

    @property
    def number(self) -> int:
        """By which plug-ins of frameworks find the group in this process; the world has always -1.

        Numbers from 0 on are Horovod's process sets.
        """
        if self._number is None:
            self.as_number(next(_numbers))
        assert self._number is not None
        return self._number

    def as_number(self, number: int) -> None:
        """Gives the group this number, which another group may have had."""
        self.native.number(number)
        self._number = number

    def selection_table(self) -> str:
        """Returns how operations of each size run in this group, as a text to print.

        Where ranks exchange messages: the algorithm from each size on, its predicted time, and the
        latency and bandwidth that were measured when the job started. CORRO_ALGORITHMS chooses
        otherwise; see docs/algorithms.md.
        """
        return self.native.selection_table()

    @property
    def native(self) -> _native.Group:
        """The engine's group."""
        if self._native is None:
            raise self._refusal()
        return self._native

    def end(self) -> None:
        """The membership epoch that the group was made in is over."""
        self._native = None
        self._is_over = True

    def _refusal(self) -> FailedPreconditionError:
        if not self._is_over:
            return FailedPreconditionError(f"this rank is not in the group {list(self.ranks)}")
        return FailedPreconditionError(
            f"the group {list(self.ranks)} is of an earlier epoch, and ranks have come or gone"
            " since: make it again, in a reset callback of corro.elastic.State"
        )

    def __repr__(self) -> str:
        return f"Group({list(self.ranks)})"


class Dependent(Protocol):
    """What uses the engine's memory, and runs operations of its own."""

    def close(self) -> None:
        """Lets go of it: the engine is closed."""

    def join(self, group: Group) -> None:
        """This rank joins the group: its operations there go on without anything of this rank."""

    def resume(self) -> None:
        """Blocks until all ranks of the group have joined."""


class Carried(Protocol):
    """What goes on in the next membership epoch: an optimizer, whose other names are its user's."""

    def _is_in_use(self) -> bool:
        """Returns whether it would go on in this epoch."""

    def _enter_epoch(self) -> None:
        """Makes in the epoch that has begun what it had in the last one. Communicates."""


class Background(Protocol):
    """A framework that computes, and communicates, while Python goes on."""

    def cause_of(self, error: Exception, /) -> CorroError | None:
        """Returns the error of corro's that the framework made this one of; None if of none."""

    def wait_for(self, values: object, /) -> None:
        """Blocks until what of the values the framework computes is there; raises if it fails."""

    def finish(self) -> None:
        """Blocks until all is over; raises what nobody was told."""


class Context:
    """An engine, its world, and the thread that waits for its works."""

    def __init__(self, engine: _native.Engine, store: _native.Store | None = None) -> None:
        from weakref import WeakKeyDictionary, WeakSet

        from corro._completion import Completions

        self.engine = engine
        self.store = store  # Rank 0 may serve it: alive as long as others may still ask.
        self.world = Group(range(engine.size), engine.world)
        self.completions = Completions(engine)
        self.dependents: WeakSet[Dependent] = WeakSet()
        self._carried: WeakKeyDictionary[Carried, None] = WeakKeyDictionary()
        self._groups: WeakSet[Group] = WeakSet((self.world,))
        self.watches: list[WaitWatch] = []
        self.left = ""  # Why this rank has left the epoch, once it has.
        self.failure: CorroError | None = None  # The last one that a future of torch's was told.
        _open.append(self)

    def new_group(self, ranks: Sequence[int], name: str | None = None) -> Group:
        """Makes a group; only its members need to. Does not communicate."""
        group = Group(ranks, self.engine.group(list(ranks), name))
        self._groups.add(group)
        return group

    def in_use(self) -> list[Dependent]:
        """Returns the dependents that the program can reach: the same on all ranks."""
        import gc

        if self.dependents:
            gc.collect()  # When others go is not the same on all ranks.
        return list(self.dependents)

    def carry(self, one: Carried) -> None:
        """Notes what goes on in the next epoch: behind what was noted before, on all ranks."""
        self._carried.pop(one, None)
        self._carried[one] = None

    def carried(self, held: Sequence[object]) -> list[Carried]:
        """Returns what goes on in the next epoch: in the same order on all ranks.

        `held`: what the program can certainly reach.
        """
        import gc

        known = set(map(id, held))
        if any(id(one) not in known for one in self._carried):
            gc.collect()  # When others go is not the same on all ranks. Takes 0.1 s with torch.
        return [one for one in self._carried if one._is_in_use()]

    def leave(self, why: str) -> None:
        """Leaves the epoch: operations fail from now on, also those of a rank that is alone."""
        self.left = why
        self.engine.end_epoch(why)

    def check_there(self) -> None:
        """Raises AbortedError if this rank has left the epoch."""
        if self.left:
            raise AbortedError(f"the epoch has ended: {self.left}")

    def end_epoch(self) -> None:
        """Closes; a new epoch comes."""
        self.close()
        for group in self._groups:
            group.end()

    def close(self) -> None:
        """Says goodbye to the other ranks."""
        if self not in _open:
            return
        _open.remove(self)
        for watch in self.watches:
            watch.close()
        self.engine.close()  # First: a thread that holds a dependent's lock may be inside.
        for dependent in list(self.dependents):
            dependent.close()
        self.completions.join()


_current: Context | None = None  # The one that init() has made.
_was_shut_down = False  # At least once.
_open: list[Context] = []  # That, and those of torch's groups in another back end's world.
_generation = 0  # In this epoch.
_start_failed = False  # Also by an interrupt.
_membership: Membership | None = None  # In an elastic job, from the first init() on.
_is_guest = False  # A joiner, between init() and the call of its training function.
_early: Context | None = None  # Of a guest that has asked for its rank: it does not train yet.
_guests: list[ReferenceType[Carried]] = []  # What it has made for its first epoch, in order.
_IS_NEW = End(0, "this rank is new")
_deadlines: tuple[float | None, float | None] = (None, None)  # As init() was given them.
_backgrounds: list[Background] = []


def add_background(one: Background) -> None:
    """Has errors looked up in it, and commits and shutdown() wait for it."""
    _backgrounds.append(one)


def wait_for(values: object) -> None:
    """Blocks until values of any framework are there; raises the framework's error if one fails."""
    for one in _backgrounds:
        one.wait_for(values)


def init(*, timeout: float | None = None, join_timeout: float | None = None) -> None:
    """Joins the job: finds the other ranks, connects to them and waits until all have come.

    Who this process is comes from the environment that `corro run`, torchrun and others set;
    without one it is a world of one. Calling it again does nothing. A process that comes in the
    middle of an elastic job returns at once, and joins when corro.elastic.run has it train, or when
    it asks for its rank or the number of ranks.

    Args:
        timeout: the default deadline of every operation, and of joining, in seconds.
        join_timeout: the deadline of joining, if it is another one.
    """
    global _deadlines, _is_guest
    if _is_guest:
        return
    if is_joiner() and (_membership is None or _membership.place is None):
        _deadlines = (
            _arguments.seconds("timeout", timeout),
            _arguments.seconds("join_timeout", join_timeout),
        )
        _member()
        _is_guest = True
        return
    try:
        start(timeout=timeout, join_timeout=join_timeout)
    except CorroError as error:
        if _membership is None or not _membership.is_over_with(error):
            raise
        end = End.by(error)
    else:
        return
    move_on(_membership, end, held=())


def arrive() -> None:
    """Joins the epoch that comes next, where this process is a joiner; else does nothing.

    Blocks until all others have come to the end of a step.
    """
    global _current, _early, _is_guest
    if not _is_guest:
        return
    _is_guest = False
    _current, _early = _early, None
    member = _membership
    assert member is not None
    made = [one for known in _guests if (one := known()) is not None]
    _guests.clear()
    if _current is None:
        return _move(made, member, _IS_NEW)
    try:
        for one in made:
            one._enter_epoch()
        return
    except CorroError as error:
        if not member.is_over_with(error):
            raise
        end = End.by(error)
    _move(made, member, end)


def cause_of(error: Exception) -> CorroError | None:
    """Returns the error of corro's that this one is, or was made of; None if there is none.

    torch's C++ makes a RuntimeError of what a future was told, and keeps its text alone.
    """
    if isinstance(error, CorroError):
        return error
    for one in _backgrounds:
        if (cause := one.cause_of(error)) is not None:
            return cause
    return _current.failure if isinstance(error, RuntimeError) and _current is not None else None


def is_outside() -> bool:
    """Returns whether this process is a joiner that does not train with the others yet."""
    return _is_guest


def carry(one: Carried) -> None:
    """Notes what goes on in the next epoch; of a joiner: what begins in its first one."""
    if is_outside():
        from weakref import ref

        _guests.append(ref(one))
    else:
        current().carry(one)


def end_step() -> None:
    """Leaves the epoch if another one comes: this rank has ended a step."""
    if _membership is not None and _current is not None and _membership.is_over():
        _current.leave(_membership.why)


def membership() -> Membership | None:
    """Returns this process's part in an elastic job; None in other jobs, and before init()."""
    return _membership


def report(say: Callable[[], None]) -> None:
    """Tells who looks at the job. If nobody hears, what was done is as good."""
    with suppress(CorroError):
        say()


def epoch() -> int:
    """Returns which membership epoch of an elastic job this process is in; 0 in other jobs."""
    return 0 if _membership is None else _membership.epoch


def is_last_epoch() -> bool:
    """Returns whether all ranks are to save what they have in this epoch, and to end."""
    return _membership is not None and _membership.is_last


def start(
    *,
    rank: int | None = None,
    size: int | None = None,
    store: _native.Store | None = None,
    incarnation: str | None = None,
    timeout: float | None = None,
    join_timeout: float | None = None,
) -> None:
    """As init, for callers that know rank, size and how to find the others, as torch does.

    `incarnation` tells this life of the ranks from others; they have agreed on it.
    """
    global _current, _deadlines, _generation, _start_failed
    if _current is not None:
        return
    from corro import _native

    timeout = _arguments.seconds("timeout", timeout)
    join_timeout = _arguments.seconds("join_timeout", join_timeout)
    _deadlines = timeout, join_timeout
    member = _member()
    if rank is None and _is_under_torchrun():
        # By name: the core stands below corro.torch, and torchrun's ranks have torch.
        found = import_module("corro.torch.store").store_of_environment(join_timeout or timeout)
        store, incarnation = found, found.incarnation
    if rank is None and member is not None and member.place is not None:
        rank, size = member.place.rank, member.place.size
    # The keys of a rendezvous are written once, so each time has a name of its own.
    life = incarnation or _life(member)
    job = f"{os.environ.get('CORRO_JOB_ID', 'corro')}/{life}" if life else None
    try:
        engine = _native.Engine(
            rank=rank,
            size=size,
            job=job,
            store=store,
            timeout=timeout,
            join_timeout=join_timeout,
            epochs=None if member is None else member.epochs,
        )
    except AlreadyExistsError as error:
        if not _start_failed:
            raise
        raise FailedPreconditionError(
            "corro.init: an earlier init() of this process did not finish, and the other ranks "
            "still look for what it has announced: start all ranks again"
        ) from error
    except BaseException:
        _start_failed = True
        raise
    _generation += 1
    _start_failed = False
    _current = Context(engine, store)
    _current.world.as_number(_WORLD)


def _member() -> Membership | None:
    """Returns this process's part in an elastic job, to which it belongs from here on."""
    global _membership
    if _membership is None and is_elastic():
        from corro import _native

        _membership = Membership(_native.Epochs())
    return _membership


def _life(member: Membership | None) -> str:
    """Returns what tells this time from others: alike for all members, however they came here.

    Empty for the first time in the first epoch.
    """
    parts = []
    if member is not None and member.epoch > 0:
        parts.append(f"epoch-{member.epoch}")
    if _generation > 0:
        parts.append(str(_generation))
    return "/".join(parts)


def move_on(member: Membership, end: End, *, held: Sequence[object]) -> None:
    """Leaves the epoch, for the next one that all of its members join.

    What the program holds goes on there: optimizers reduce gradients in the new world, beginning
    with zeros; groups are over. Blocks until all members have called it.

    Args:
        member: this process's part in the job.
        end: how the epoch has ended here.
        held: objects that the program can certainly reach, optimizers among them.

    Raises:
        TimeoutError: no epoch has begun in time, or a rank of it has not come in time.
        UnavailableError: the agent is gone, or has ended this member's part in the job.
    """
    _move([] if _current is None else _current.carried(held), member, end)


def _move(carried: Sequence[Carried], member: Membership, end: End) -> None:
    deadline = monotonic() + patience()
    while True:
        _leave_epoch()
        member.wait_for_next(end, deadline)
        try:
            _enter_epoch(carried)
            return
        except CorroError as error:  # One of the epoch's members was lost meanwhile.
            if not member.is_over_with(error):
                raise
            end = End.by(error, end.steps)


def _leave_epoch() -> None:
    global _current
    context, _current = _current, None
    if context is not None:
        context.end_epoch()


def _enter_epoch(carried: Sequence[Carried]) -> None:
    """Joins the epoch that the membership says, and lets these go on in it."""
    global _generation
    _generation = 0
    operations, joining = _deadlines
    start(timeout=operations, join_timeout=joining)
    for one in carried:
        one._enter_epoch()


def _is_under_torchrun() -> bool:
    """Returns whether torch's store is where the ranks meet."""
    known = os.environ.keys()
    return known >= {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"} and not (
        known & {"CORRO_AGENT", "CORRO_BOOTSTRAP", "CORRO_RANK"} or os.environ["WORLD_SIZE"] == "1"
    )


def shutdown() -> None:
    """Says goodbye to the other ranks. Runs by itself at exit; init() may follow it.

    Raises a CorroError if operations have failed in compiled functions whose results nobody has
    waited for. A program that does not call it ends with that error, and status 1.
    """
    global _current, _early, _is_guest, _was_shut_down
    failure = _finish_backgrounds() if _current is not None else None
    context, _current, _early = _current or _early, None, None
    _is_guest = False
    if context is not None:
        _was_shut_down = True
        context.close()
    if failure is not None:
        raise failure


def _finish_backgrounds() -> CorroError | None:
    """Returns what nobody was told."""
    failure: CorroError | None = None
    for one in _backgrounds:
        try:
            one.finish()
        except CorroError as error:
            failure = error
    return failure


def _abandon_in_child() -> None:
    """In a forked child: engines and threads are the parent's, so there is nothing to close."""
    for context in _open:
        context.completions.abandon_in_child()
    _open.clear()


os.register_at_fork(after_in_child=_abandon_in_child)


@atexit.register
def close_all() -> None:
    """At the end of the process: leaves all jobs. Does nothing the second time."""
    native: Any = sys.modules.get("corro._native")
    if native is None:
        return
    _silence_threads()
    failure: CorroError | None = None
    try:
        shutdown()
    except CorroError as error:
        failure = error
    for context in _open.copy():
        context.close()
    native.begin_exit()  # Other threads have left the engines with an error, or do so now.
    if failure is not None and getattr(sys, "last_value", None) is None:
        fail(failure)


def fail(failure: CorroError) -> None:
    """Ends the process: what is raised at exit would not change its status."""
    sys.excepthook(type(failure), failure, failure.__traceback__)
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    os._exit(1)


def _silence_threads() -> None:
    """At the end nobody is told that a thread in the background was interrupted."""
    threading: Any = sys.modules.get("threading")
    if threading is None:
        return
    told = threading.excepthook

    def tell(args: Any) -> None:
        if not issubclass(args.exc_type, CorroError):
            told(args)

    threading.excepthook = tell


def current() -> Context:
    """Returns this process's engine and world; raises before init, and where no other rank is."""
    if _current is not None:
        return _current
    if _is_guest:
        raise FailedPreconditionError(
            "this rank comes in the middle of its job, and the others train: communicate inside of"
            " the function that corro.elastic.run calls"
        )
    state = "was shut down" if _was_shut_down else "has not been initialized"
    raise FailedPreconditionError(f"corro {state}; call corro.init() first")


def current_or_none() -> Context | None:
    """Returns the same; None before init(), after shutdown(), and where no other rank is."""
    return None if _current is None or _current.engine.closed else _current


def _here() -> Context:
    """Returns the same to who only asks about ranks. A joiner joins."""
    global _current, _early
    if not _is_guest:
        return current()
    if _early is None:
        assert _membership is not None
        _move([], _membership, _IS_NEW)
        _early, _current = _current, None
        assert _early is not None
    return _early


def is_initialized() -> bool:
    """Returns whether init() was called (and shutdown() was not)."""
    return _current is not None or _is_guest


def rank() -> int:
    """Returns this process's rank: 0 ... size() - 1."""
    return _here().engine.rank


def size() -> int:
    """Returns the number of ranks."""
    return _here().engine.size


def local_rank() -> int:
    """Returns this process's rank among those on the same host.

    In an elastic job it stays as it was at the start, so that a GPU is this process's own for its
    life: ranks that come later get numbers that are free.
    """
    place = os.environ.get("CORRO_LOCAL_RANK")
    if is_elastic() and place is not None and is_initialized():
        return int(place)
    return _here().engine.local_rank


def local_size() -> int:
    """Returns the number of ranks on this host."""
    return _here().engine.local_size


def node_rank() -> int:
    """Returns this host's number; hosts are numbered by their lowest rank."""
    return _here().engine.node_rank


def nodes() -> list[int]:
    """Returns the host of each rank, as a number."""
    return list(_here().engine.node_of_ranks)


def cross_rank() -> int:
    """Returns this host's number among the hosts that have a rank with this local_rank()."""
    return _peer_hosts().index(node_rank())


def cross_size() -> int:
    """Returns the number of hosts that have a rank with this local_rank(): all, if equally full."""
    return len(_peer_hosts())


def _peer_hosts() -> list[int]:
    own = local_rank()
    return [host for host, ranks in sorted(_ranks_of_hosts().items()) if ranks > own]


def is_homogeneous() -> bool:
    """Returns whether every host has equally many ranks."""
    return len(set(_ranks_of_hosts().values())) == 1


def _ranks_of_hosts() -> Counter[int]:
    return Counter(_here().engine.node_of_ranks)


def set_step(step: int) -> None:
    """Tells the launcher and `corro doctor` which optimizer step this is; never blocks."""
    current().engine.set_step(_arguments.whole("step", step, 0, _arguments.MOST_U64))


def watch_waits(seconds: float, say: Callable[[str], None]) -> None:
    """Says whom this rank waits for, and in which operation, when it does so for long.

    Once for each such wait, and again after as long. A thread looks, until shutdown(). `corro run`
    says the same of all ranks by itself: this is for ranks that others have started.

    Args:
        seconds: how long is long.
        say: is called on that thread, with one line.
    """
    from corro._waits import WaitWatch

    context = current()
    if not (long := _arguments.number("seconds", seconds)) > 0:
        raise InvalidArgumentError(f"seconds has to be above 0, not {seconds!r}")
    watch = WaitWatch(context.engine, long, say)
    context.watches.append(watch)
    watch.start()


def start_timeline(path: str | os.PathLike[str], *, mark_cycles: bool = False) -> None:
    """Begins to write what all ranks do into a file in Chrome's trace format.

    Every rank calls it; rank 0 writes the file, and a rank that does not call it is not in it. It
    can be opened and parsed at any moment, also after a rank was killed: https://ui.perfetto.dev
    shows a row of tracks for each name (operations without one: their kind; gradients: their
    bucket), with a track for each rank. Of loaded plans, and of what corro.parallelize() trains by
    one, it shows a row of tracks for each rank, with a track for each lane and transfer: its
    firings, with their micro-batch. Operations do not wait for the file: what it cannot take is
    left out, and counted in it as DROPPED.

    Args:
        path: the file, on rank 0's host. One that is there is replaced.
        mark_cycles: mark when named operations were started together.

    Raises:
        FailedPreconditionError: a timeline is written already.
        CorroError: the file cannot be made, on rank 0.
    """
    current().engine.start_timeline(os.path.abspath(path), bool(mark_cycles))


def stop_timeline() -> None:
    """Ends the timeline, if there is one: the file is whole when this returns on rank 0.

    Every rank calls it; one that does not is waited for a second. shutdown() does it, too. Raises a
    CorroError if the file could not be written, on rank 0.
    """
    current().engine.stop_timeline()


def world() -> Group:
    """Returns the group of all ranks."""
    return current().world


def new_group(ranks: Sequence[int], *, name: str | None = None) -> Group:
    """Makes a group of these world ranks; their order is the group's rank order.

    Only members need to call: all groups of the same ranks in the same order on each of them, or
    with a `name` each, by which members find each other whatever the order. Does not block, and
    does not communicate: that a member has not made the group shows in its first operation. So does
    a name that ranks gave to different members: an InvalidArgumentError shows both lists.
    """
    try:
        ranks = [index(rank) for rank in ranks]
    except TypeError:
        raise InvalidArgumentError(f"new_group() takes whole numbers, not {ranks!r}") from None
    if len(set(ranks)) != len(ranks):
        raise InvalidArgumentError(f"a rank is in the group twice: {ranks}")
    if outside := [rank for rank in ranks if not 0 <= rank < _arguments.MOST_U32 >> 1]:
        raise InvalidArgumentError(f"new_group: there is no rank {outside[0]}")
    return current().new_group(ranks, _arguments.name("name", name))


def world_or(group: Group | None) -> Group:
    """Returns the group; the world if there is none."""
    if group is None:
        return world()
    if not isinstance(group, Group):
        raise InvalidArgumentError(
            f"group has to be one of corro.new_group(), not {type(group).__name__}"
        )
    return group


def native_of(group: Group | None) -> _native.Group:
    """Returns the engine's group; the world's if there is none."""
    if group is None and _current is not None:
        return _current.world.native
    return world_or(group).native


class Exchange:
    """An allgather of integers that has its own memory: who runs `op` keeps this object alive."""

    def __init__(
        self,
        group: Group,
        values: Sequence[int],
        timeout: float | None = None,
        name: str | None = None,
    ) -> None:
        from array import array

        from corro import _native

        self._mine = array("q", values)
        self._all = array("q", bytes(8 * len(values) * group.size()))
        self.op = _native.Op(
            kind=_native.ALLGATHER,
            dtype=_native.I64,
            input=self._mine.buffer_info()[0],
            output=self._all.buffer_info()[0],
            count=len(values),
            timeout=timeout,
            name=name,
        )

    def rows(self) -> list[list[int]]:
        """Returns every rank's values, in the group's order, once `op` is done."""
        step = len(self._mine)
        return [list(self._all[i : i + step]) for i in range(0, len(self._all), step)]


def exchange(
    group: Group,
    values: Sequence[int],
    timeout: float | None = None,
    name: str | None = None,
) -> list[list[int]]:
    """Returns every rank's values, in the group's order; all give the same number of values."""
    gathered = Exchange(group, values, timeout, name)
    group.native.run([gathered.op], gathered, name is not None)
    return gathered.rows()


def barrier(
    group: Group | None = None, *, timeout: float | None = None, name: str | None = None
) -> None:
    """Blocks until every rank of the group has called it.

    With a name its place among the group's other operations may differ by rank.
    """
    from corro import _native

    op = _native.Op(
        kind=_native.BARRIER,
        name=_arguments.name("name", name),
        timeout=_arguments.seconds("timeout", timeout),
    )
    world_or(group).native.run([op], None, name is not None)


def join(group: Group | None = None, *, timeout: float | None = None) -> int:
    """Blocks until every rank of the group has called it; returns the world rank that was the last.

    For ranks with different numbers of batches: who has no more calls join(), the others go on with
    named operations. A named allreduce runs as soon as those that have not joined have submitted
    it, and has their result: an Average is of them alone. Other named verbs raise a
    FailedPreconditionError while a rank has joined. In a DistributedOptimizer of the same ranks the
    gradients of who has joined count as zeros, also in an average. Verbs without a name, and
    closures of optimizers, wait for it as for any rank::

        for batch in batches:
            mean = corro.numpy.allreduce(gradient(batch), name="gradient")
        corro.join()

    It waits for as long as it takes; with a `timeout` (seconds) a TimeoutError names ranks that
    have not joined. This rank has joined all the same, and may only call join() again.
    """
    from array import array

    timeout = _arguments.seconds("timeout", timeout)
    last = array("i", [-1])
    joined = world_or(group)
    dependents = current().in_use()
    for dependent in dependents:
        dependent.join(joined)
    joined.native.join(last.buffer_info()[0], last, timeout).wait()
    for dependent in dependents:
        dependent.resume()
    return last[0]
