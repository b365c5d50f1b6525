"""Imported before all else of corro.tensorflow: is there a TensorFlow, and is it new enough?"""

from __future__ import annotations

from corro._frameworks import check_framework

OLDEST = (2, 12)

check_framework("corro.tensorflow", "tensorflow", "TensorFlow", "TensorFlow", OLDEST)
