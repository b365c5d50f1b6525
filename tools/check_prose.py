"""Prints what can be counted in the prose of the files that a change touches. Never fails.

    tools/check_prose.py [FILE...]

Without names, the files are those that differ from where the work began (changed.py).

Counted are, and each is a sign, no law:

    .cc files           comment lines for each line of code
    comments, Markdown  sentences whose subject is a headless "What is ...", "Whoever has ..."
    Markdown            semicolons in 1 000 words
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator

from changed import ROOT, changed_since, origin

SOURCES = (".h", ".cc", ".c")

COMMENT = re.compile(r"(?:^|[^:\"'])//[/!]?<?( ?)(.*)$")
FENCE = re.compile(r"^( *)(```+|~~~+).*?^\1\2", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`\n]*`")
LINK = re.compile(r"\]\([^)\n]*\)|https?://\S+")
# A sentence ends at a mark with a space behind it; an abbreviation before a small letter is none.
SENTENCE = re.compile(r"[^.!?]+(?:[.!?](?!\s|$)[^.!?]*)*[.!?]?", re.DOTALL)
# "Which way it goes ..." has its noun, so `which` alone needs a verb behind it.
HEADLESS = re.compile(
    r"(?:What|Who|Whom|Whoever|Whomever|Whatever|Whichever)\b"
    r"|Which\s+(?:is|are|was|were|has|have|had|can|may|must|does|do|did)\b"
)
WORD = re.compile(r"[A-Za-z][\w'-]*")


def comment_of(line: str) -> tuple[int, str] | None:
    """Returns (spaces before it, text) of a line's // comment."""
    found = COMMENT.search(line)
    if found is None:
        return None
    text = found[2]
    return len(text) - len(text.lstrip()), text.strip()


def density(source: str) -> tuple[int, int]:
    """Returns (comment lines, lines of code) of C++; a line of code may end in a comment."""
    comments = code = 0
    for line in source.splitlines():
        text = line.strip()
        if text.startswith("//"):
            comments += 1
        elif text:
            code += 1
    return comments, code


def comment_blocks(source: str) -> Iterator[tuple[int, str]]:
    """Yields (line, text) of each paragraph in the comments; examples and tables are left out."""
    begin, lines = 0, list[str]()
    for number, line in enumerate([*source.splitlines(), ""], 1):
        found = comment_of(line)
        if found is not None and found[0] < 2 and found[1]:
            alone = line.lstrip().startswith("//")
            if lines and not alone:
                yield begin, "\n".join(lines)
                lines = []
            if not lines:
                begin = number
            lines.append(found[1])
            continue
        if lines:
            yield begin, "\n".join(lines)
            lines = []


def markdown_blocks(text: str) -> Iterator[tuple[int, str]]:
    """Yields (line, text) of each paragraph, item and row, without code and addresses."""
    text = FENCE.sub(lambda fence: "\n" * fence[0].count("\n"), text)
    text = LINK.sub("]", CODE.sub("`x`", text))
    begin, lines = 0, list[str]()
    for number, line in enumerate([*text.splitlines(), ""], 1):
        item = re.match(r"\s*(?:[-*+]|\d+\.|#+|\|)\s+", line)
        if lines and (item or not line.strip()):
            yield begin, "\n".join(lines)
            lines = []
        if line.strip():
            if not lines:
                begin = number
            lines.append(line[item.end() :] if item else line.strip())


def headless(block: str) -> Iterator[tuple[int, str]]:
    """Yields (line in the block, first words) of sentences whose subject is headless."""
    for found in SENTENCE.finditer(block):
        sentence = found[0].lstrip(" \n\t*_\"'(")
        if HEADLESS.match(sentence) and not sentence.rstrip().endswith("?"):
            at = found.start() + len(found[0]) - len(found[0].lstrip())
            words = " ".join(sentence.split()[:6])
            yield block.count("\n", 0, at), words


def semicolons(text: str) -> tuple[int, int]:
    """Returns (semicolons, words) of a Markdown text, without code and addresses."""
    prose = "\n".join(block for _, block in markdown_blocks(text))
    return prose.count(";"), len(WORD.findall(prose))


def report(name: str, text: str) -> list[str]:
    """Returns what is to be said of one file."""
    lines = []
    is_source = name.endswith(SOURCES)
    if name.endswith(".cc") and not name.endswith("_test.cc"):
        comments, code = density(text)
        if code:
            share = comments / code
            lines.append(f"{name}: {comments} comment lines, {code} of code ({share:.3f})")
    if name.endswith(".md"):
        marks, amount = semicolons(text)
        if amount:
            rate = 1000 * marks / amount
            lines.append(f"{name}: {rate:.1f} semicolons in 1 000 words")
    blocks = comment_blocks(text) if is_source else markdown_blocks(text)
    for begin, block in blocks if is_source or name.endswith(".md") else ():
        for offset, words in headless(block):
            lines.append(f'{name}:{begin + offset}: headless subject: "{words} ..."')
    return lines


def main() -> None:
    for name in sys.argv[1:] or changed_since(origin()):
        path = ROOT / name
        if not name.endswith((*SOURCES, ".md")) or not path.is_file():
            continue
        for line in report(name, path.read_text(errors="replace")):
            print(f"prose: {line}")


if __name__ == "__main__":
    main()
