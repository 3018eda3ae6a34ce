"""What is deployed and documented is what the code does: keys, manifests, examples."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import typer
import yaml

from collector import exported
from slowrank.app import app
from slowrank.config.load import load
from slowrank.config.table import rows
from slowrank.discovery.shard import Shard
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


def containers(name):
    """Ours in the documents of a manifest, each with how many pods of it there are."""
    documents = yaml.safe_load_all((ROOT / "deploy" / "kubernetes" / name).read_text())
    for document in documents:
        if document["kind"] in {"Pod", "StatefulSet"}:
            pod = document["spec"] if document["kind"] == "Pod" else document["spec"]["template"]["spec"]
            ours = [container for container in pod["containers"] if container["name"] == "slowrank"]
            yield from ((container, document["spec"].get("replicas", 1)) for container in ours)


def command(container, environment):
    """The words that the kubelet starts, from the image's entry point on, and what the command line's own parser makes of them."""
    image = (ROOT / "deploy" / "Dockerfile").read_text()
    entry, usual = (json.loads(line) for key in ("ENTRYPOINT", "CMD") for line in re.findall(rf"^{key} (\[.*\])$", image, re.MULTILINE))
    arguments = [re.sub(r"\$\((\w+)\)", lambda found: environment[found[1]], word) for word in container.get("args", usual)]
    program, name, *rest = entry + arguments
    assert program == "slowrank"
    serve = typer.main.get_group(app).commands[name]
    return serve.make_context(name, rest).params


def test_each_pod_of_the_central_one_watches_its_shard():
    """Its number among the pods is that of its shard, whose count is the number of pods; the image's own arguments are not lost."""
    ((container, replicas),) = containers("central.yaml")
    env = {one["name"]: one for one in container["env"]}
    assert env["SHARD"]["valueFrom"] == {"fieldRef": {"fieldPath": "metadata.labels['apps.kubernetes.io/pod-index']"}}
    assert env["SHARDS"]["value"] == str(replicas)
    for count in (replicas, 3):
        given = [command(container, {"SHARD": str(pod), "SHARDS": str(count)}) for pod in range(count)]
        assert [Shard.parse(one["shard"]) for one in given] == [Shard(pod, count) for pod in range(count)]
        assert {str(one["config"]) for one in given} == {"/etc/slowrank/slowrank.toml"}
    (service,) = [d for d in yaml.safe_load_all((ROOT / "deploy/kubernetes/central.yaml").read_text()) if d["kind"] == "Service"]
    assert service["spec"]["clusterIP"] == "None"  # a balanced address would answer for one shard or another


def test_the_one_beside_an_engine_watches_all_that_it_is_given():
    """It is started as the image is by itself."""
    ((container, _),) = containers("sidecar.yaml")
    given = command(container, {})
    assert (str(given["config"]), given["shard"], given["check"]) == ("/etc/slowrank/slowrank.toml", None, False)


def test_the_example_loads():
    """deploy/slowrank.toml is a configuration."""
    assert load(ROOT / "deploy" / "slowrank.toml", {}).config.engines[0].name == "glm5-prod"


def test_the_page_names_series_that_exist():
    """Each of our series that the page names is exported."""
    named = set(re.findall(r"slowrank_[a-z_]+", DOC))
    assert named <= set(exported.FAMILIES) | {family.name for family in exported.of_signals().values()}
