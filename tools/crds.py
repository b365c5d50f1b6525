"""Writes deploy/crds.yaml: the custom resources MPIJob and CorroJob, with their rules.

    tools/crds.py            writes the file
    tools/crds.py --check    fails if the file is not what would be written

MPIJob has four versions that never were converted into each other: strategy None changes the
apiVersion alone, and what the target's schema lacks is pruned. So all four carry the same fields,
the union, and differ in one default: `spec.writtenAs`, the version that the manifest was written
for. It never changes. Rules and the operator's defaults follow it, not the version through which
somebody reads or writes. A rule says which versions know a field; the MPI Operator of another
version would have pruned it.

Pod templates keep unknown fields: a PodSpec's schema four times is more than `kubectl apply` can
store. The API server checks them when the operator makes pods.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import yaml

import crd_corrojob
import crd_mpijob

TARGET = Path(__file__).resolve().parent.parent / "deploy" / "crds.yaml"
HEAD = """\
# Written by tools/crds.py; a test holds the file to it.
# What the fields mean: docs/design/0022-kubernetes-jobs.md.
"""


def render() -> str:
    documents = [crd_mpijob.definition(), crd_corrojob.definition()]
    # A round through JSON gives each place an object of its own, so YAML writes no anchors.
    copies = json.loads(json.dumps(documents))
    text: str = yaml.safe_dump_all(copies, sort_keys=False, width=120, explicit_start=True)
    return HEAD + text


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing")
    if not parser.parse_args().check:
        TARGET.write_text(render())
    elif not TARGET.exists() or TARGET.read_text() != render():
        print(f"{TARGET}: not what tools/crds.py writes: run it", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
