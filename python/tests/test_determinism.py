"""CORRO_DETERMINISTIC=1: jobs that are repeated end with the same bits, whoever comes late."""

from __future__ import annotations

import pytest
from conftest import Launch

# Prints a digest of all results. Values of many magnitudes: another order of additions has other
# bits. The late rank comes after the others to every operation.
DIGEST = """
import hashlib, sys, time
import torch
import corro.torch as corro

late = int(sys.argv[1])
corro.init()
random = torch.Generator().manual_seed(corro.rank())
digest = hashlib.sha256()
for dtype in (torch.float32, torch.bfloat16):
    for count in (1, 7, 1000, 70_001, 1_000_003):
        x = torch.randn(count, generator=random)
        x = (x * 10 ** (4 * torch.rand(count, generator=random))).to(dtype)
        parts = [part.clone() for part in x.split(-(-count // 3))]
        time.sleep(0.02 * (corro.rank() == late))
        results = [corro.allreduce(x, corro.Sum)]
        handles = [corro.allreduce_async(part, name=f"{i}") for i, part in enumerate(parts)]
        results += [corro.synchronize(handle) for handle in handles]
        for result in results:
            digest.update(result.view(torch.uint8).numpy().tobytes())
print("digest", digest.hexdigest())
"""


@pytest.mark.timeout(600)
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
