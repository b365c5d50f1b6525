"""Whether metrics are named as Prometheus's users expect it.

promtool says so, where it is on PATH. Elsewhere the rules that its linter is documented to have are
checked here: https://prometheus.io/docs/practices/naming and .../instrumenting/writing_exporters.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator

_SAMPLE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(?:,|$)')
_TYPES = {"counter", "gauge", "histogram", "summary", "untyped"}
# Base units are seconds, bytes, meters, grams, joules, volts, amperes, kelvin or celsius, ratio.
_OTHER_UNITS = {
    *("minutes", "hours", "days", "weeks", "ms", "us", "ns", "sec", "secs"),
    *("bits", "kb", "mb", "gb", "percent", "percents", "fahrenheit", "inches", "feet"),
}
_MULTIPLES = ("milli", "micro", "nano", "kilo", "mega", "giga", "tera", "kibi", "mebi", "gibi")
_BASE_UNITS = ("seconds", "bytes", "meters", "grams", "joules", "volts", "amperes")
_OF_HISTOGRAMS = ("_bucket", "_count", "_sum")


def problems(text: str) -> list[str]:
    """Returns what is wrong in a text of Prometheus's exposition format, a line each."""
    promtool = shutil.which("promtool")
    print("checked by", promtool or "rules of our own: promtool is not on PATH")
    if promtool is None:
        return list(by_rules(text))
    told = subprocess.run(
        [promtool, "check", "metrics"], input=text, capture_output=True, text=True, check=False
    )
    return [] if told.returncode == 0 else (told.stdout + told.stderr).splitlines()


def by_rules(text: str) -> Iterator[str]:
    """Yields what is wrong by the rules that are written down here."""
    helps: dict[str, str] = {}
    types: dict[str, str] = {}
    samples: set[str] = set()
    for line in text.splitlines():
        word, _, rest = line.removeprefix("# ").partition(" ")
        if line.startswith(("# HELP ", "# TYPE ")):
            name, _, told = rest.partition(" ")
            known = helps if word == "HELP" else types
            if name in known:
                yield f"{name}: {word} is there twice"
            known[name] = told
        elif (sample := _SAMPLE.fullmatch(line)) is None:
            yield f"no sample: {line}"
        elif line in samples or not _is_number(sample[3]):
            yield f"{sample[1]}: is there twice, or is no number: {line}"
        else:
            samples.add(line)
            base = _base_of(sample[1], types)
            yield from _wrong_labels(sample[1], sample[2] or "", types.get(base, ""))
            if base not in types or not helps.get(base, "").strip():
                yield f"{base}: TYPE and HELP have to stand in front of it"
    for name, kind in types.items():
        yield from _wrong_name(name, kind)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _base_of(name: str, types: dict[str, str]) -> str:
    """Returns the histogram that a sample belongs to, or its own name."""
    for suffix in _OF_HISTOGRAMS:
        base = name.removesuffix(suffix)
        if base != name and types.get(base) in ("histogram", "summary"):
            return base
    return name


def _wrong_labels(name: str, labels: str, kind: str) -> Iterator[str]:
    found = _LABEL.findall(labels)
    if "".join(f'{label}="{value}",' for label, value in found) != labels + "," * bool(labels):
        yield f"{name}: labels are not well formed: {labels}"
    names = [label for label, _ in found]
    if len(set(names)) < len(names):
        yield f"{name}: a label is there twice: {labels}"
    for label in names:
        if re.search(r"[a-z][A-Z]", label):
            yield f"{name}: label {label} is in camel case"
        if (label == "le" and kind != "histogram") or (label == "quantile" and kind != "summary"):
            yield f"{name}: label {label} belongs to histograms and summaries"


def _wrong_name(name: str, kind: str) -> Iterator[str]:
    words = name.split("_")
    if kind not in _TYPES:
        yield f"{name}: there is no type {kind}"
    if ":" in name or re.search(r"[a-z][A-Z]", name):
        yield f"{name}: colons are for rules, and words are parted by _"
    if (kind == "counter") != name.endswith("_total"):
        yield f"{name}: counters end in _total, and nothing else does"
    if kind not in ("histogram", "summary") and name.endswith(_OF_HISTOGRAMS):
        yield f"{name}: {_OF_HISTOGRAMS} belong to histograms and summaries"
    if _TYPES & set(words):
        yield f"{name}: has its type in its name"
    for word in words:
        is_multiple = word.startswith(_MULTIPLES) and word.endswith(_BASE_UNITS)
        if word in _OTHER_UNITS or is_multiple:
            yield f"{name}: {word} is no base unit"
