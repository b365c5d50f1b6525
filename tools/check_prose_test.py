"""Counts prose in small texts whose numbers are known."""

from __future__ import annotations

import pytest

from check_prose import (
    comment_blocks,
    density,
    headless,
    main,
    markdown_blocks,
    report,
    semicolons,
)

SOURCE = """\
// Pump: moves water. What is full is
// emptied first. Which way it goes is fixed.
//
//   What an example says is no prose.
#include "pump.h"

int level = 0;  // Whoever fills it.
const char* kAddress = "http://example";
/// Who is late? It waits.
void pump();
"""


def found(blocks: list[tuple[int, str]]) -> list[tuple[int, str]]:
    return [(begin + line, words) for begin, text in blocks for line, words in headless(text)]


def test_density_counts_lines_of_comments_and_of_code() -> None:
    assert density(SOURCE) == (5, 4)
    assert density("") == (0, 0)


def test_headless_subjects_of_comments_are_found_with_their_lines() -> None:
    assert found(list(comment_blocks(SOURCE))) == [
        (1, "What is full is emptied first."),
        (7, "Whoever fills it."),
    ]


@pytest.mark.parametrize(
    ("text", "is_headless"),
    [
        ("What is full is emptied.", True),
        ("Done. Who has ended is forgotten.", True),
        ("Which is never so.", True),
        ("Which rank it was is not known.", False),
        ("What is full?", False),
        ("It says what is full.", False),
        ("Whole files are read.", False),
        ("See a.b.c What else.", False),
    ],
)
def test_a_subject_is_headless_if_no_noun_follows(text: str, is_headless: bool) -> None:
    assert bool(list(headless(text))) == is_headless


MARKDOWN = """\
# What it does

One two; three
`a;b` [link](http://x;y).

```bash run
echo "a;b"; What is this.
```

- Who runs is named; so is the host.
| a | Whoever pays |
"""


def test_headings_and_items_of_markdown_are_blocks_of_their_own() -> None:
    assert [line for line, _ in markdown_blocks(MARKDOWN)] == [1, 3, 10, 11]


def test_semicolons_in_code_and_addresses_do_not_count() -> None:
    assert semicolons("One two; three `a;b` [x](http://y;z).\n\n```\na;b\n```\n") == (1, 5)


def test_a_report_names_file_and_line() -> None:
    assert report("a.md", "One; two.\nWhat is full is emptied.\n") == [
        "a.md: 142.9 semicolons in 1 000 words",
        'a.md:2: headless subject: "What is full is emptied. ..."',
    ]
    assert report("a.cc", "// One.\nint x;\nint y;\n") == [
        "a.cc: 1 comment lines, 2 of code (0.500)"
    ]
    assert report("a_test.cc", "int x;\n") == []
    assert report("a.py", "# What is full.\n") == []


def test_a_tree_without_git_has_nothing_to_say(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("check_prose.ROOT", tmp_path)
    monkeypatch.setattr("sys.argv", ["check_prose.py"])
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", "/")
    main()
    assert capsys.readouterr().out == ""
