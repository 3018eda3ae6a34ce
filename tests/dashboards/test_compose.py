"""docker-compose.yml and what it mounts fit together: a stack that does not come up is found here, without a Docker engine."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path
from urllib.parse import urlsplit

import compose_spec
import pytest
import yaml

from dashboards import build

ROOT = Path(__file__).parent.parent.parent
COMPOSE = ROOT / "deploy" / "compose"


@pytest.fixture(scope="module")
def stack():
    return yaml.safe_load((ROOT / "docker-compose.yml").read_text())


@pytest.fixture(scope="module")
def services(stack):
    return stack["services"]


def addresses(service) -> set[int]:
    """Ports of loopback that a service's health check asks."""
    return {int(port) for port in re.findall(r"127\.0\.0\.1:(\d+)", " ".join(service.get("healthcheck", {}).get("test", [])))}


PORTS = {"prometheus": 9090, "alertmanager": 9093, "grafana": 3000, "slowrank": 9469, "workload": 30000, "workload-gpu": 30000}
"""Where each one listens: the default of each image, of `slowrank serve`, and what the workload is told."""


def test_the_file_is_what_the_compose_specification_says():
    """No unknown key, no value of the wrong type, by a parser of the specification that is not ours."""
    compose_spec.PyCompose.from_yaml((ROOT / "docker-compose.yml").read_text()).to_spec()


@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        ("network_mode:", "network_mod:", "network_mod"),
        ("read_only: true", "read_only: 3", "expected a boolean"),
        ("interval: 5s", "interval: 5q", "not a valid duration"),
        ("127.0.0.1:3000:3000", "127.0.0.1:3000:x000", "port"),
    ],
)
def test_the_specification_is_really_asked(right, wrong, said):
    """The check above can fail: a slip in any of these is refused."""
    text = (ROOT / "docker-compose.yml").read_text()
    assert right in text
    with pytest.raises(ValueError, match=said):
        compose_spec.PyCompose.from_yaml(text.replace(right, wrong))


def test_images_are_pinned(services):
    """Each image has a version, none is `latest`; what we build ourselves is built here and never pulled."""
    for name, service in services.items():
        if image := service.get("image"):
            assert re.fullmatch(r"[\w./-]+:(v?\d+\.\d+\.\d+|dev)", image), name
        else:
            assert "build" in service
    assert services["workload"]["pull_policy"] == "never"
    assert services["slowrank"]["image"] == services["workload"]["image"] == "slowrank:dev"
    assert "FROM slowrank:dev" in services["workload-gpu"]["build"]["dockerfile_inline"]


def test_mounts_are_files_of_this_tree_and_read_only(stack, services):
    """Each host path exists; each volume is declared; what is ours cannot be changed from inside."""
    named = set()
    for service in services.values():
        for mount in service.get("volumes", []):
            source, _, rest = mount.partition(":")
            if source.startswith("."):
                assert (ROOT / source).exists(), mount
                assert rest.endswith(":ro"), mount
            else:
                named.add(source)
    assert named == set(stack["volumes"])
    assert (ROOT / services["slowrank"]["build"]["dockerfile"]).is_file()


def test_each_service_is_asked_for_its_health_where_it_listens(services):
    """And the ports that are published are those, on this machine's loopback only."""
    for name, service in services.items():
        if name != "slowrank":  # the image has its own
            assert addresses(service) == {PORTS[name]}, name
    published = [port.split(":") for port in services["prometheus"]["ports"]]
    assert {int(inside) for _, _, inside in published} == {PORTS[n] for n in ("prometheus", "alertmanager", "grafana")}
    assert {host for host, _, _ in published} == {"127.0.0.1"}
    assert not any("ports" in service for name, service in services.items() if name != "prometheus")


def test_all_share_one_loopback(services):
    """So that nothing needs a token, and the same files serve the processes of `make dev`."""
    assert all(s["network_mode"] == "service:prometheus" for n, s in services.items() if n != "prometheus")


def test_addresses_in_the_files_are_those_of_the_services(services):
    """Scrape targets, Alertmanager, the data source and the engine that slowrank watches."""
    prometheus = yaml.safe_load((COMPOSE / "prometheus.yml").read_text())
    targets = {job["job_name"]: job["static_configs"][0]["targets"] for job in prometheus["scrape_configs"]}
    assert targets == {
        "slowrank": [f"127.0.0.1:{PORTS['slowrank']}"],
        "engine": [f"127.0.0.1:{PORTS['workload']}"],
        "prometheus": [f"127.0.0.1:{PORTS['prometheus']}"],
    }
    assert prometheus["alerting"]["alertmanagers"][0]["static_configs"][0]["targets"] == [f"127.0.0.1:{PORTS['alertmanager']}"]
    (source,) = yaml.safe_load((COMPOSE / "grafana" / "datasources.yaml").read_text())["datasources"]
    assert urlsplit(source["url"]).port == PORTS["prometheus"]
    assert source["jsonData"]["timeInterval"] == prometheus["global"]["scrape_interval"]
    config = tomllib.loads((COMPOSE / "slowrank.toml").read_text())
    assert config["service"]["listen"] == f"127.0.0.1:{PORTS['slowrank']}"
    assert config["engines"][0]["nodes"] == [f"http://127.0.0.1:{PORTS['workload']}"]
    for name in ("workload", "workload-gpu"):
        entry = services[name]["entrypoint"]
        assert entry[entry.index("--port") + 1] == str(PORTS["workload"])


def test_paths_inside_meet(services):
    """Prometheus finds its configuration and the rules beside it, Grafana its provisioned dashboards and home, slowrank its file."""
    inside = {name: {m.split(":")[1]: m.split(":")[0] for m in service.get("volumes", [])} for name, service in services.items()}
    assert "--config.file=/etc/prometheus/prometheus.yml" in services["prometheus"]["command"]
    assert inside["prometheus"]["/etc/prometheus/prometheus.yml"] == "./deploy/compose/prometheus.yml"
    (pattern,) = yaml.safe_load((COMPOSE / "prometheus.yml").read_text())["rule_files"]
    assert [p for p in inside["prometheus"] if Path(p).match(f"/etc/prometheus/{pattern}")] == ["/etc/prometheus/rules/slowrank.rules.yaml"]
    assert "--config.file=/etc/alertmanager/alertmanager.yml" in services["alertmanager"]["command"]
    assert "/etc/alertmanager/alertmanager.yml" in inside["alertmanager"]
    (provider,) = yaml.safe_load((COMPOSE / "grafana" / "dashboards.yaml").read_text())["providers"]
    folder = inside["grafana"][provider["options"]["path"]]
    home = Path(services["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"])
    assert str(home.parent) == provider["options"]["path"]
    assert (ROOT / folder / home.name).is_file()
    assert {p.name for p in (ROOT / folder).glob("*.json")} == set(build.page_files())
    dockerfile = (ROOT / services["slowrank"]["build"]["dockerfile"]).read_text()
    (config,) = re.findall(r'^CMD \["--config", "([^"]+)"\]', dockerfile, re.MULTILINE)
    assert inside["slowrank"][config] == "./deploy/compose/slowrank.toml"
    (state,) = re.findall(r"^VOLUME (\S+)", dockerfile, re.MULTILINE)
    assert inside["slowrank"][state] == "slowrank"
    assert f":{PORTS['slowrank']}/healthz" in dockerfile
    assert "python -m venv /opt/slowrank" in dockerfile  # where workload-gpu adds torch
    assert "/opt/slowrank/bin/pip" in services["workload-gpu"]["build"]["dockerfile_inline"]


def test_the_image_is_built_of_what_git_holds():
    """Virtual environments, caches, recorded data and the tools of previews stay out of the build, and history does."""
    left_out = set((ROOT / ".dockerignore").read_text().splitlines())
    assert {f"**/{line}" for line in (ROOT / ".gitignore").read_text().splitlines() if line and not line.startswith("#")} <= left_out
    assert ".git" in left_out


def test_what_is_kept_is_kept_in_volumes(services):
    """Prometheus, Alertmanager and slowrank write where their volume is; Grafana is provisioned anew each time and keeps nothing."""
    for name in ("prometheus", "alertmanager"):
        (path,) = re.findall(r"--storage\.(?:tsdb\.)?path=(\S+)", " ".join(services[name]["command"]))
        assert f"{name}:{path}" in services[name]["volumes"]
    assert all(mount.endswith(":ro") for mount in services["grafana"]["volumes"])
    places = {Path(mount.split(":")[1]).parent for mount in services["grafana"]["volumes"]}
    assert {Path("/etc/grafana/provisioning/datasources"), Path("/etc/grafana/provisioning/dashboards")} < places


def test_nobody_waits_for_what_never_comes(services):
    """Whoever is waited for is a service of the default profile, and has a health check where health is waited for."""
    for service in services.values():
        waits = service.get("depends_on", {})
        for name in waits:
            assert "profiles" not in services[name]
            if isinstance(waits, dict) and waits[name]["condition"] == "service_healthy":
                assert services[name]["healthcheck"]["test"]


def test_prometheus_of_the_stack_can_do_what_rules_and_pages_ask(services):
    """`@ end()` needs 2.33, and the rules were tried with 2.42; Grafana is one of those that the dashboards are for, 9 to 13."""
    prometheus, grafana = (tuple(map(int, re.findall(r"\d+", services[n]["image"].rpartition(":")[2]))) for n in ("prometheus", "grafana"))
    assert prometheus >= (2, 42)
    assert 9 <= grafana[0] <= 13


def test_slowrank_cannot_write_but_where_it_keeps_incidents(services):
    """A read-only root, no capabilities."""
    assert services["slowrank"]["read_only"] is True
    assert services["slowrank"]["cap_drop"] == ["ALL"]
    assert [m for m in services["slowrank"]["volumes"] if not m.endswith(":ro")] == ["slowrank:/var/lib/slowrank"]


def test_prometheus_and_alertmanager_take_their_files(server_binary, tmp_path):
    """By Prometheus' own check, with the rules where the container has them."""
    promtool, _ = server_binary("promtool")
    (tmp_path / "prometheus.yml").write_bytes((COMPOSE / "prometheus.yml").read_bytes())
    build.write(build.rule_files(), tmp_path / "rules")
    done = subprocess.run([promtool, "check", "config", tmp_path / "prometheus.yml"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 rule files found" in done.stdout


def test_alertmanager_starts_with_its_file(serve, tmp_path):
    """The real one."""
    arguments = [f"--config.file={COMPOSE / 'alertmanager.yml'}", f"--storage.path={tmp_path / 'am'}", "--cluster.listen-address="]
    with serve("alertmanager", [*arguments, "--web.listen-address=127.0.0.1:0"]) as url:
        assert url.startswith("http://127.0.0.1:")
