"""corro.criteo: lines that were drawn, read as batches."""

from __future__ import annotations

import gzip
import random
from collections.abc import Callable
from pathlib import Path

import numpy
import pytest

import corro
from corro import criteo


def line(draw: random.Random, label: int) -> str:
    """Returns a line of Criteo's format, with missing fields."""
    integers = [draw.choice(["", "-1", "0", "7", "2000000000"]) for _ in range(13)]
    categories = [draw.choice(["", f"{draw.getrandbits(32):08x}"]) for _ in range(26)]
    return "\t".join([str(label), *integers, *categories])


def lines(count: int) -> list[str]:
    draw = random.Random(1)
    return [line(draw, draw.randrange(2)) for _ in range(count)]


def written(path: Path, texts: list[str]) -> Path:
    opened: Callable[..., object] = gzip.open if path.suffix == ".gz" else open
    with opened(path, "wt") as file:  # type: ignore[attr-defined]
        file.write("".join(text + "\n" for text in texts))
    return path


def labels(batches: list[criteo.Batch]) -> list[float]:
    return [label for batch in batches for label in batch.labels.tolist()]


def of_one(tmp_path: Path, text: str) -> criteo.Batch:
    return next(criteo.read([written(tmp_path / "one", [text])], 1))


@pytest.mark.parametrize("name", ["day_0", "day_0.gz"])
def test_what_a_line_says_is_in_its_batch(tmp_path: Path, name: str) -> None:
    texts = lines(6)
    (batch,) = criteo.read([written(tmp_path / name, texts)], 6)
    fields = [text.split("\t") for text in texts]
    assert batch.labels.dtype == batch.dense.dtype == numpy.float32
    assert batch.labels.tolist() == [float(one[0]) for one in fields]
    integers = [[max(int(text or 0), 0) for text in one[1:14]] for one in fields]
    assert numpy.allclose(batch.dense, numpy.log1p(integers))
    assert batch.ids.dtype == numpy.int64
    assert batch.ids.shape == (6, 26)


def test_ids_differ_where_column_or_category_do(tmp_path: Path) -> None:
    texts = lines(300)
    texts += ["\t".join(["1", *[""] * 13, *[value] * 26]) for value in ("", "0", "1", "ffffffff")]
    batches = list(criteo.read([written(tmp_path / "day", texts)], len(texts)))
    meant = [(at, text) for one in texts for at, text in enumerate(one.split("\t")[14:])]
    found: dict[object, int] = {}
    for one, number in zip(meant, batches[0].ids.flatten().tolist(), strict=True):
        assert found.setdefault(one, number) == number
    assert len(set(found.values())) == len(found)
    # Spread over 64 bits: half of them are negative.
    assert 0.45 < numpy.mean(numpy.array(list(found.values())) < 0) < 0.55


def test_a_category_has_the_same_id_however_its_digits_are_written(tmp_path: Path) -> None:
    rest = ["1", *[""] * 13]
    small, large = (of_one(tmp_path, "\t".join([*rest, *[text] * 26])) for text in ("00af", "AF"))
    assert small.ids.tolist() == large.ids.tolist()


def mixed(column: int, category: int) -> int:
    """Returns the id of a category of a column, from 1: SplitMix64's steps, and its sign."""
    number, bits = (column << 33) + category, 2**64 - 1
    number = (number ^ number >> 30) * 0xBF58476D1CE4E5B9 & bits
    number = (number ^ number >> 27) * 0x94D049BB133111EB & bits
    number ^= number >> 31
    return number - 2**64 if number >> 63 else number


def test_ids_stay_what_they_are(tmp_path: Path) -> None:
    """Tables that were saved have them."""
    batch = of_one(tmp_path, "\t".join(["0", *[""] * 13, "68fd1e64", *[""] * 25]))
    missing = [mixed(column, 1 << 32) for column in range(2, 27)]
    assert batch.ids[0].tolist() == [mixed(1, 0x68FD1E64), *missing]


def test_ranks_get_batches_in_turn(tmp_path: Path) -> None:
    texts = lines(30)
    paths = [written(tmp_path / "a", texts[:7]), written(tmp_path / "b.gz", texts[7:])]
    all_labels = [float(text[0]) for text in texts]

    def of(rank: int, drop_last: bool) -> list[float]:
        return labels(list(criteo.read(paths, 4, rank=rank, ranks=3, drop_last=drop_last)))

    for rank in range(3):  # Two rounds of three batches are whole; six lines are left.
        own = [label for at in (rank, rank + 3) for label in all_labels[4 * at : 4 * at + 4]]
        assert of(rank, drop_last=True) == own
        assert of(rank, drop_last=False) == own + all_labels[24:][4 * rank : 4 * rank + 4]


def test_one_process_gets_every_line(tmp_path: Path) -> None:
    path = written(tmp_path / "day", lines(9))
    sizes = [len(batch.labels) for batch in criteo.read([path], 4, drop_last=False)]
    assert sizes == [4, 4, 1]
    assert [len(batch.labels) for batch in criteo.read([path], 4)] == [4, 4]


@pytest.mark.parametrize(
    ("field", "text", "said"),
    [
        (0, "2", "the label is b'2'"),
        (0, "", "the label is b''"),
        (3, "1.5", "integer 3 is b'1.5'"),
        (13, "1" * 19, "integer 13 is"),
        (14, "xyz", "category 1 is b'xyz'"),
        (39, "-1", "category 26 is b'-1'"),
        (20, "0x12", "category 7 is b'0x12'"),
        (20, "123456789", "category 7 is b'123456789'"),
        (20, "1\t2", "has 41 fields, not 40"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, field: int, text: str, said: str) -> None:
    texts = lines(3)
    fields = texts[1].split("\t")
    fields[field] = text
    texts[1] = "\t".join(fields)
    with pytest.raises(corro.InvalidArgumentError) as caught:
        list(criteo.read([written(tmp_path / "day", texts)], 3))
    assert str(caught.value).startswith(f"{tmp_path / 'day'}:2: {said}")


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    path = written(tmp_path / "day.gz", lines(2000))
    path.write_bytes(path.read_bytes()[:-2000])
    with pytest.raises(corro.DataLossError, match=r"day\.gz: is damaged after line \d\d+"):
        list(criteo.read([path], 10))


def test_wrong_arguments_are_refused(tmp_path: Path) -> None:
    for size, rank, ranks in ((0, 0, 1), (4, 2, 2), (4, -1, 2)):
        with pytest.raises(corro.InvalidArgumentError, match="batch_size"):
            criteo.read([tmp_path / "none"], size, rank=rank, ranks=ranks)
    with pytest.raises(FileNotFoundError):
        list(criteo.read([tmp_path / "none"], 4))
