"""deploy/operator.yaml and the chart are one text, and of this version."""

from __future__ import annotations

import pytest
import yaml

import manifests

VERSION = (manifests.ROOT / "python" / "corro" / "VERSION").read_text().split()[0]


def test_the_file_is_what_the_script_writes() -> None:
    assert manifests.TARGET.read_text() == manifests.plain_manifests(), "run tools/manifests.py"


def test_the_chart_is_of_this_version_and_has_the_definitions() -> None:
    chart = yaml.safe_load((manifests.CHART / "Chart.yaml").read_text())
    values = yaml.safe_load((manifests.CHART / "values.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == VERSION
    assert values["image"] == values["agentImage"] == f"corro:{VERSION}"
    crds = manifests.CHART / "crds" / "crds.yaml"
    assert crds.resolve() == manifests.ROOT / "deploy" / "crds.yaml"


def test_each_value_is_used() -> None:
    values = yaml.safe_load((manifests.CHART / "values.yaml").read_text())
    text = "".join(path.read_text() for path in (manifests.CHART / "templates").glob("*.yaml"))
    assert [name for name in values if f".Values.{name} " not in text] == []


@pytest.mark.parametrize("place", ["{{ .Values.nothing }}", "{{ if .Values.image }}", "{{- x }}"])
def test_what_helm_alone_understands_is_refused(place: str) -> None:
    with pytest.raises(ValueError, match="neither a value"):
        manifests.render(place, {"image": "x"}, "space")
