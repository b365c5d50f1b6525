"""What the runner of the documents' code runs, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from run_docs import DocumentError, Kube, check


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
    assert check(page, Kube()) == 3


@pytest.mark.parametrize(
    ("fences", "complaint"),
    [
        ([("bash run", "false; true")], "exit status 1"),
        ([("python run", "raise SystemExit(3)")], "exit status 3"),
        ([("bash run", "echo b"), ("text output", "a")], "no line 'a'"),
        ([("bash run", "echo b; echo a"), ("text output", "a\nb")], "no line 'b'"),
        ([("bash", "true")], "say after ```bash"),
        ([("python later", "1")], "say after ```python"),
        ([("python kube", "1")], "say after ```python"),
    ],
)
def test_a_stale_block_is_named(
    tmp_path: Path, fences: list[tuple[str, str]], complaint: str
) -> None:
    with pytest.raises(DocumentError, match=complaint) as error:
        check(document(tmp_path, *fences), Kube())
    assert "page.md:" in str(error.value)


def test_a_block_for_a_control_plane_is_left_out_with_its_output_unless_there_is_one(
    tmp_path: Path,
) -> None:
    page = document(
        tmp_path,
        ("bash run", "echo first"),
        ("bash kube", "echo $PLANE; ls deploy/crds.yaml"),
        ("text output", "mine\ndeploy/crds.yaml"),
    )
    without = Kube()
    assert check(page, without) == 1
    assert without.left_out == 1
    assert check(page, Kube({"PLANE": "mine"})) == 3
    with pytest.raises(DocumentError, match="no line 'mine'"):
        check(page, Kube({"PLANE": "yours"}))
