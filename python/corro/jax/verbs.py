"""The verbs: on arrays with values by the engine itself, on traced ones as a part of a program."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import jax

from corro import _context, _objects
from corro._calls import running, starting
from corro.jax import _eager, _traced
from corro.jax._tracing import is_tracing, outside

P = ParamSpec("P")
R = TypeVar("R")


def _either(run: Callable[P, R], trace: Callable[P, Any]) -> Callable[P, R]:
    """Makes the function that does the one at once, and the other in what is traced."""

    @functools.wraps(run)
    def verb(*args: P.args, **kwargs: P.kwargs) -> R:
        chosen = trace if is_tracing() else run
        return chosen(*args, **kwargs)

    verb.__name__ = verb.__qualname__ = run.__name__.removeprefix("run_")
    return verb


def _unless_empty(verb: Callable[P, Any]) -> Callable[P, Any]:
    """Has it return pytrees without arrays, such as the state of optax.sgd(), as they are."""

    @functools.wraps(verb)
    def of_tree(*args: P.args, **kwargs: P.kwargs) -> Any:
        tree = args[0] if args else kwargs.get("tree", 0)
        return verb(*args, **kwargs) if jax.tree.leaves(tree) else tree

    return of_tree


def _traced_allreduce(x: Any, *args: Any, **how: Any) -> Any:
    return _traced.grouped_allreduce([x], *args, **how)[0]


def _traced_broadcast(x: Any, *args: Any, **how: Any) -> Any:
    return _traced.broadcast_parameters([x], *args, **how)[0]


allreduce = _either(_eager.run_allreduce, _traced_allreduce)
grouped_allreduce = _either(running(_eager.grouped_allreduce), _traced.grouped_allreduce)
allgather = _either(running(_eager.allgather), _traced.allgather)
broadcast = _either(running(_eager.broadcast), _traced_broadcast)
broadcast_parameters = _unless_empty(
    _either(running(_eager.broadcast_parameters), _traced.broadcast_parameters)
)
reducescatter = _either(running(_eager.reducescatter), _traced.reducescatter)
alltoall = _either(running(_eager.alltoall), _traced.alltoall)

allreduce_async = outside(starting(_eager.allreduce))
grouped_allreduce_async = outside(starting(_eager.grouped_allreduce))
allgather_async = outside(starting(_eager.allgather))
broadcast_async = outside(starting(_eager.broadcast))
reducescatter_async = outside(starting(_eager.reducescatter))
alltoall_async = outside(starting(_eager.alltoall))

barrier = outside(_context.barrier)
join = outside(_context.join)
broadcast_object = outside(_objects.broadcast_object)
allgather_object = outside(_objects.allgather_object)
