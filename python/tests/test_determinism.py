"""CORRO_DETERMINISTIC=1: jobs that are repeated end with the same bits, whoever comes late."""

from __future__ import annotations

import pytest
from conftest import Launch

# Prints a digest of all results. Values of many magnitudes: another order of additions has other
# bits. The late rank comes after the others to every operation. With numpy, which is there sooner
# than torch; bf16 takes the same ways as f16.
DIGEST = """
import hashlib, sys, time
import numpy
import corro
import corro.numpy as cn

late = int(sys.argv[1])
corro.init()
random = numpy.random.default_rng(corro.rank())
digest = hashlib.sha256()
for dtype in (numpy.float32, numpy.float16):
    for count in (1, 7, 1000, 70_001, 1_000_003):
        x = random.standard_normal(count)
        x = (x * 10 ** (3 * random.random(count))).astype(dtype)
        parts = numpy.array_split(x, min(count, 3))
        time.sleep(0.02 * (corro.rank() == late))
        results = [cn.allreduce(x, corro.Sum)]
        handles = [cn.allreduce_async(part, name=f"{i}") for i, part in enumerate(parts)]
        results += [cn.synchronize(handle) for handle in handles]
        for result in results:
            digest.update(result.tobytes())
print("digest", digest.hexdigest())
"""


@pytest.mark.parametrize(("transport", "ranks"), [("shm", 3), ("tcp", 4)])
def test_repeated_jobs_have_the_same_bits(launch: Launch, transport: str, ranks: int) -> None:
    env = {"CORRO_DETERMINISTIC": "1", "CORRO_TRANSPORT": transport}
    digests = set()
    for late in (0, ranks - 1):
        job = launch("-c", DIGEST, str(late), ranks=ranks, **env).check()
        said = [line.split()[-1] for line in job.output.splitlines() if "digest" in line]
        assert len(said) == ranks
        digests.update(said)
    assert len(digests) == 1
