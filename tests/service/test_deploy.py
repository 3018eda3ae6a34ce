"""What is deployed and documented is what the code does: keys, manifests, examples."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from collector import exported
from slowrank.config.load import load
from slowrank.config.table import rows
from slowrank.service.run import READERS

ROOT = Path(__file__).parents[2]
DOC = (ROOT / "docs" / "sidecar.md").read_text()


def test_the_page_has_every_key_with_its_default_and_meaning():
    """docs/sidecar.md holds the table that `slowrank.config.table.rows` makes, line by line."""
    table = list(rows())
    assert len(table) > 50
    assert [line for line in table if line not in DOC.splitlines()] == []


def test_numbers_of_the_page_are_the_codes():
    """What the page says is bounded is bounded by so much."""
    assert f"{READERS} requests at a time" in DOC


@pytest.mark.parametrize("name", ["sidecar.yaml", "central.yaml"])
def test_manifests_hold_configurations_that_load_and_containers_that_may_do_little(name, tmp_path):
    """Each configuration is taken; ours is not root, on a read-only root, without capabilities, with limits and probes."""
    documents = list(yaml.safe_load_all((ROOT / "deploy" / "kubernetes" / name).read_text()))
    texts = [d["data"]["slowrank.toml"] for d in documents if d["kind"] == "ConfigMap" and "slowrank.toml" in d["data"]]
    assert len(texts) == 1
    (tmp_path / "c.toml").write_text(texts[0])
    assert load(tmp_path / "c.toml", {}).config.service.token_file is not None
    specs = [d["spec"] if d["kind"] == "Pod" else d["spec"]["template"]["spec"] for d in documents if d["kind"] in {"Pod", "StatefulSet"}]
    (container,) = [c for spec in specs for c in spec["containers"] if c["name"] == "slowrank"]
    security = container["securityContext"]
    assert security["runAsNonRoot"]
    assert security["readOnlyRootFilesystem"]
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert {"cpu", "memory"} == set(container["resources"]["limits"])
    assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"


def test_the_example_loads():
    """deploy/slowrank.toml is a configuration."""
    assert load(ROOT / "deploy" / "slowrank.toml", {}).config.engines[0].name == "glm5-prod"


def test_the_page_names_series_that_exist():
    """Each of our series that the page names is exported."""
    named = set(re.findall(r"slowrank_[a-z_]+", DOC))
    assert named <= set(exported.FAMILIES) | {family.name for family in exported.of_signals().values()}
