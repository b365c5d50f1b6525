"""Imported before all else of corro.jax: is there a JAX, and is it new enough?"""

from __future__ import annotations

from corro._frameworks import check_framework

OLDEST = (0, 7)

check_framework("corro.jax", "jax", "JAX", "JAX", OLDEST)
