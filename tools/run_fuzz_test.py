"""The bookkeeping of the fuzz runner: every decoder has a target, every target a decoder."""

from __future__ import annotations

import re
from pathlib import Path

from passed import ROOT
from run_fuzz import Target, compare, read_decoders, read_targets, write_seeds

DOCUMENT = """\
| field | bytes |
|---|---|
| magic | 4 |

| decoder | function | fuzz target |
|:--|--|--:|
| frame header | `wire::decode_header` | `fuzz_frame` |
| hello | `wire::decode_hello` | `fuzz_hello` |

| another | table |
| x | y |
"""
FRAME = Target("fuzz_frame", Path("/b/fuzz_frame"), None)
HELLO = Target("fuzz_hello", Path("/b/fuzz_hello"), Path("/seeds.txt"))


def test_reads_only_tables_with_a_fuzz_target() -> None:
    assert read_decoders(DOCUMENT) == {"frame header": "fuzz_frame", "hello": "fuzz_hello"}


def test_reads_what_cmake_writes() -> None:
    assert read_targets("fuzz_frame /b/fuzz_frame \nfuzz_hello /b/fuzz_hello /seeds.txt\n") == [
        FRAME,
        HELLO,
    ]


def test_complete_lists_agree() -> None:
    assert compare(read_decoders(DOCUMENT), [FRAME, HELLO]) == []


def test_a_decoder_without_target_is_named() -> None:
    (problem,) = compare(read_decoders(DOCUMENT), [FRAME])
    assert "decoder hello" in problem
    assert "fuzz_hello" in problem


def test_a_target_without_decoder_is_named() -> None:
    stray = Target("fuzz_stray", Path("/b/s"), None)
    (problem,) = compare(read_decoders(DOCUMENT), [FRAME, HELLO, stray])
    assert "fuzz_stray" in problem


def test_this_project_names_a_decoder_for_each_target() -> None:
    """As `make fuzz` finds, but before everything is built for it."""
    listed = "\n".join(path.read_text() for path in (ROOT / "cpp").rglob("CMakeLists.txt"))
    names = re.findall(r"corro_fuzz\(\s*(\w+)", listed)
    assert "frame_fuzz" in names
    targets = [Target(name, Path(name), None) for name in names]
    assert compare(read_decoders((ROOT / "docs/wire.md").read_text()), targets) == []


def test_a_document_without_table_fails() -> None:
    assert compare(read_decoders("# wire\n"), [])


def test_seeds_become_files(tmp_path: Path) -> None:
    write_seeds("# a comment\n\nline 0001ff\nempty_arena 00\n", tmp_path / "corpus")
    assert (tmp_path / "corpus/line").read_bytes() == b"\x00\x01\xff"
    assert {seed.name for seed in (tmp_path / "corpus").iterdir()} == {"line", "empty_arena"}
