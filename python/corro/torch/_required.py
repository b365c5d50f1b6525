"""Imported before all else of corro.torch: is there a torch, and is it new enough?"""

from __future__ import annotations

from corro._frameworks import check_framework

OLDEST = (2, 2)

check_framework("corro.torch", "torch", "PyTorch", "torch", OLDEST)
