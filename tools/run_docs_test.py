"""What the runner of the documents' code runs, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from run_docs import DocumentError, check


def document(folder: Path, *fences: tuple[str, str]) -> Path:
    path = folder / "page.md"
    path.write_text("\n".join(f"Words.\n\n```{head}\n{text}\n```\n" for head, text in fences))
    return path


def test_a_file_is_written_run_and_its_output_compared(tmp_path: Path) -> None:
    page = document(
        tmp_path,
        ("python file=hello.py", "print('hello 7 worlds')\nprint('done')"),
        ("bash run", "python hello.py"),
        ("text output", "hello ... worlds\ndone"),
        ("toml", "shown = true"),
        ("bash norun", "exit 1"),
    )
    assert check(page) == 3


@pytest.mark.parametrize(
    ("fences", "complaint"),
    [
        ([("bash run", "false; true")], "exit status 1"),
        ([("python run", "raise SystemExit(3)")], "exit status 3"),
        ([("bash run", "echo b"), ("text output", "a")], "no line 'a'"),
        ([("bash run", "echo b; echo a"), ("text output", "a\nb")], "no line 'b'"),
        ([("bash", "true")], "say after ```bash"),
        ([("python later", "1")], "say after ```python"),
    ],
)
def test_a_stale_block_is_named(
    tmp_path: Path, fences: list[tuple[str, str]], complaint: str
) -> None:
    with pytest.raises(DocumentError, match=complaint) as error:
        check(document(tmp_path, *fences))
    assert "page.md:" in str(error.value)
