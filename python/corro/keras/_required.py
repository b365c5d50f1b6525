"""Imported before all else of corro.keras: is there a Keras, and is it new enough?"""

from __future__ import annotations

from corro._frameworks import check_framework

OLDEST = (3, 0)

check_framework("corro.keras", "keras", "Keras", "Keras", OLDEST)
