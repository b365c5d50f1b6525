"""corro's verbs on JAX's arrays, outside and inside of jit.

import jax, corro, corro.jax

corro.init()
mean = corro.jax.allreduce(jax.numpy.arange(4.0))

@jax.jit
def step(weights, batch):
    gradients = jax.grad(loss)(weights, batch)
    return update(weights, corro.jax.grouped_allreduce(gradients))
"""

from __future__ import annotations

from corro.jax import _required as _required
from corro.jax.verbs import allreduce, grouped_allreduce

__all__ = ["allreduce", "grouped_allreduce"]
