"""Checks the code samples at the top of the headers of cpp/src: one compilation of all of them.

A sample is an indented block of `//` lines with a statement in it: `;` at the end of a line. It is
the body of a function in the header's namespace. Names that nothing declares stand for what a user
has at hand: they are parameters of a type that is not known, so what is done with them is not
checked. All else is: types, constants, functions and what they are given. A function that nothing
declares has to be in STAND_INS. Blocks with `...`, and those that are prose, are left out.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

CPP = Path(__file__).resolve().parent.parent / "cpp"
SOURCES = CPP / "src"
# Functions of whoever uses a header.
STAND_INS = {"begin", "connect", "end", "look", "read", "run", "send", "use"}
STAND_INS |= {"read_file", "send_to_every_member", "send_to_leader"}
# Names that mean something else where the sample stands: system calls, namespaces of corro.
GIVEN = {
    "graph/cut.h": {"plan"},
    "graph/service.h": {"use"},
    "graph/virtual_lanes.h": {"plan"},
    "io/cgroup.h": {"read"},
    "kube/client/credentials.h": {"access"},
    "kube/client/https_transport.h": {"access"},
    "kube/client/kubeconfig.h": {"connect"},
    "kube/client/transport.h": {"transport"},
    "kube/operator/operator_log.h": {"log"},
    "obs/timeline_log.h": {"log", "send"},
    "runtime/named_group.h": {"named"},
}
# Of a folder above the header's own, whose names it must not know.
ABOVE = {"base/status.h"}
INCLUDES = ("chrono", "iostream", "map", "string", "thread")
PROSE = re.compile(r"\w+ [a-z]+ [a-z]+ [a-z]+")
COMMENT_OR_TEXT = re.compile(r'//.*|"[^"]*"')
UNDECLARED = re.compile(r"^([\w/]+\.h):(\d+):\d+: error: '(\w+)' was not declared", re.MULTILINE)


class Sample(NamedTuple):
    header: str
    line: int
    code: str
    namespace: str


def samples(header: str, text: str) -> Iterator[Sample]:
    """Yields the samples of a header that can be compiled."""
    namespaces = re.findall(r"^namespace ([\w:]+) \{", text, re.MULTILINE)
    block = list[str]()
    for number, line in enumerate([*text.splitlines(), ""], 1):
        if line.startswith("//   "):
            block.append(line[5:])
            continue
        bare = [COMMENT_OR_TEXT.sub("", row).rstrip() for row in block]
        is_left_out = any("..." in row or PROSE.search(row) for row in bare)
        if any(row.endswith(";") for row in bare) and not is_left_out and namespaces:
            yield Sample(header, number - len(block), "\n".join(block), namespaces[-1])
        block = []


def includes(sample: Sample) -> Iterator[str]:
    """The header, and those beside it that the sample's comments name."""
    yield sample.header
    for name in re.findall(r"// (\w+\.h)\b", sample.code):
        yield str(Path(sample.header).parent / name)


def program(all_samples: list[Sample], given: Mapping[Sample, set[str]]) -> str:
    """Returns one source file of all samples, each a function with `given` as its parameters."""
    headers = dict.fromkeys(name for sample in all_samples for name in includes(sample))
    lines = [f"#include <{name}>" for name in INCLUDES] + [f'#include "{name}"' for name in headers]
    lines.append("using namespace std::chrono_literals;")
    for number, sample in enumerate(all_samples):
        parameters = ", ".join(f"auto& {name}" for name in sorted(given.get(sample, ())))
        lines += [
            f"namespace {sample.namespace} {{",
            f"Status sample_{number}({parameters}) {{ {{",
            f'#line {sample.line} "{sample.header}"',
            sample.code,
            "} return {}; } }",
        ]
    return "\n".join(lines)


def errors_of(source: str) -> str:
    flags = ("-std=c++20", "-w", "-fsyntax-only", "-fdiagnostics-plain-output")
    folders = (f"-I{SOURCES}", f"-I{CPP}", f"-I{CPP / 'include'}")
    done = subprocess.run(
        ["g++", "-xc++", *flags, *folders, "-"],
        input=source,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"LC_ALL": "C"},
    )
    return "".join(f"{line}\n" for line in done.stderr.splitlines() if "error:" in line)


def check(all_samples: list[Sample]) -> str:
    """Returns what is wrong with the samples, a line each."""
    given = defaultdict[Sample, set[str]](set)
    for sample in all_samples:
        given[sample] |= GIVEN.get(sample.header, set())
    first = errors_of(program(all_samples, given))
    for header, line, name in UNDECLARED.findall(first):
        [sample] = (
            each
            for each in all_samples
            if each.header == header and 0 <= int(line) - each.line <= each.code.count("\n")
        )
        is_called = re.search(rf"(?<![.>:\w]){name}\(", sample.code) is not None
        if name[0].islower() and (not is_called or name in STAND_INS):
            given[sample].add(name)
    return errors_of(program(all_samples, given)) if first else ""


def samples_of_sources() -> list[Sample]:
    return [
        sample
        for path in sorted(SOURCES.rglob("*.h"))
        if (header := str(path.relative_to(SOURCES))) not in ABOVE
        for sample in samples(header, path.read_text())
    ]


def test_the_samples_of_the_headers_compile() -> None:
    found = samples_of_sources()
    assert len(found) > 50
    assert not check(found)


def test_a_stale_sample_is_named_with_its_line() -> None:
    text = """// What it is.
//
//   Plan plan;
//   plan.add_lain({.name = at_hand});
//   describe_all(plan);
//
//   the ring is full; what comes then is lost;
//   if (...) wait();
namespace corro::graph {"""
    [sample] = samples("graph/plan.h", text)
    wrong = check([sample])
    assert "graph/plan.h:4" in wrong
    assert "add_lain" in wrong
    assert "describe_all" in wrong
    assert "at_hand" not in wrong
