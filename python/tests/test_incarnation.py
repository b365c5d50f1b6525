"""How ranks agree on which life of theirs this is, over torch's store."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from torch.distributed import HashStore, PrefixStore

import corro
from corro.torch.incarnation import agree


def lives(store: HashStore, size: int) -> list[str]:
    """Returns the word that each rank takes."""
    with ThreadPoolExecutor(size) as pool:
        return list(
            pool.map(lambda rank: agree(PrefixStore("group", store), rank, size, 20), range(size))
        )


@pytest.mark.parametrize("size", [1, 2, 5])
def test_each_life_has_one_word_of_its_own(size: int) -> None:
    store = HashStore()
    seen = set()
    for _ in range(20):
        words = lives(store, size)
        assert len(set(words)) == 1
        seen.add(words[0])
    assert len(seen) == 20


def test_a_rank_that_died_before_it_took_the_word_counts_no_more() -> None:
    store = HashStore()
    with pytest.raises(corro.TimeoutError, match="rank 1 of 3 ranks waited 0 s"):
        agree(PrefixStore("group", store), 1, 3, 0)
    with pytest.raises(corro.TimeoutError, match=r"rank 0 of 3 ranks waited 0 s.* for rank 1, 2:"):
        agree(PrefixStore("group", store), 0, 3, 0)
    assert len(set(lives(store, 3))) == 1


def test_a_rank_of_an_earlier_life_that_still_waits_does_not_join() -> None:
    store = HashStore()
    with ThreadPoolExecutor(1) as pool:
        early = pool.submit(agree, PrefixStore("group", store), 1, 2, 1)
        while not store.check(["group/word/1"]):
            pass
        old = store.get("group/word/1")
        with ThreadPoolExecutor(1) as again:
            new = again.submit(agree, PrefixStore("group", store), 1, 2, 20)
            while store.get("group/word/1") == old:
                pass
            assert agree(PrefixStore("group", store), 0, 2, 20) == new.result()
        with pytest.raises(corro.TimeoutError):
            early.result()
