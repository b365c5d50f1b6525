"""deploy/crds.yaml is what its script writes. What the rules refuse: tests/kube."""

from __future__ import annotations

import json
from typing import Any

import yaml

import crd_mpijob
import crds

# `kubectl apply` keeps the whole object in one annotation, and annotations are limited.
LARGEST_ANNOTATION = 262144


def documents() -> list[Any]:
    return list(yaml.safe_load_all(crds.TARGET.read_text()))


def test_the_file_is_what_the_script_writes() -> None:
    assert crds.TARGET.read_text() == crds.render(), "run tools/crds.py"


def test_kubectl_apply_can_store_each_definition() -> None:
    for document in documents():
        assert len(json.dumps(document)) < LARGEST_ANNOTATION // 2


def test_mpijobs_versions_differ_in_one_default_alone() -> None:
    versions = documents()[0]["spec"]["versions"]
    assert [v["name"] for v in versions if v["storage"]] == ["v2beta1"]
    schemas = []
    for version in versions:
        spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
        assert spec["properties"]["writtenAs"].pop("default") == version["name"]
        schemas.append(version["schema"])
    assert schemas == [schemas[0]] * 4
    assert '"default"' not in json.dumps(schemas[0])


def test_every_field_of_a_spec_is_of_all_versions_or_has_a_rule() -> None:
    spec = documents()[0]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    of_all = {"writtenAs", "slotsPerWorker"}
    assert set(spec["properties"]) == of_all | set(crd_mpijob.ONLY_IN)
