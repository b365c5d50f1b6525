"""Writes deploy/operator.yaml from the Helm chart in deploy/helm/corro, with its default values.

    tools/manifests.py            writes the file
    tools/manifests.py --check    fails if the file is not what would be written

The chart is the source. Its templates use nothing of Helm's language but {{ .Values.x }} and
{{ .Release.Namespace }}, which this renders in the same way: anything else is an error here.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parent.parent
CHART = ROOT / "deploy" / "helm" / "corro"
TARGET = ROOT / "deploy" / "operator.yaml"
NAMESPACE = "corro-system"
HEAD = f"""\
# Written by tools/manifests.py from helm/corro; a test holds the file to it. Apply crds.yaml first.
apiVersion: v1
kind: Namespace
metadata:
  name: {NAMESPACE}
  labels:
    pod-security.kubernetes.io/enforce: restricted
---
"""
PLACE = re.compile(r"\{\{\s*(.*?)\s*\}\}")


def render(template: str, values: dict[str, object], namespace: str) -> str:
    """The template's text with its places filled. ValueError for what it cannot fill."""

    def fill(place: re.Match[str]) -> str:
        word = place[1]
        if word == ".Release.Namespace":
            return namespace
        name = word.removeprefix(".Values.")
        if name == word or name not in values:
            raise ValueError(f"{{{{ {word} }}}}: neither a value of the chart nor the namespace")
        return str(values[name])

    return PLACE.sub(fill, template)


def plain_manifests() -> str:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    templates = sorted((CHART / "templates").glob("*.yaml"))
    return HEAD + "---\n".join(render(path.read_text(), values, NAMESPACE) for path in templates)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing")
    if not parser.parse_args().check:
        TARGET.write_text(plain_manifests())
    elif not TARGET.exists() or TARGET.read_text() != plain_manifests():
        print(f"{TARGET}: not what tools/manifests.py writes: run it", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
