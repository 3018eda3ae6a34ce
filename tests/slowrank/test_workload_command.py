"""`slowrank workload`: the faults are listed, a timetable is checked before anything starts."""

import gzip
import re
from typing import Any

import pytest
from typer.testing import CliRunner

from slowrank.app import app
from workload.config import ClusterConfig
from workload.device.catalogue import CARDS
from workload.faults import load


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What reaches the generator instead of starting it."""
    calls: list[Any] = []

    def run(config: Any, schedule: Any, stop: Any, *, say: Any, duration: float) -> None:
        calls.append((config, schedule, duration))
        say("http://127.0.0.1:1")

    monkeypatch.setattr("workload.run.run", run)
    return calls


def test_faults_are_listed_with_what_they_do() -> None:
    """Id, class, devices and the truth about each fault."""
    done = CliRunner().invoke(app, ["workload", "faults"])
    assert done.exit_code == 0
    flat = " ".join(done.output.split())
    for fault in load().values():
        assert f"{fault.id} {fault.klass} " in flat
        assert " ".join(fault.about.split()) in flat
        assert " or ".join(fault.devices) in flat


def test_options_reach_the_generator(ran: list[Any]) -> None:
    """Ranks, device, port, faults and duration arrive as given; the URL is the first line of stdout."""
    arguments = ["--ranks", "4", "--device", "cpu", "--port", "1", "--for", "2m", "--fault", "slow_rank:rank=3,onset=20,duration=30"]
    done = CliRunner().invoke(app, ["workload", "run", *arguments])
    assert done.exit_code == 0, done.output
    ((config, schedule, duration),) = ran
    assert (config.ranks, config.device, config.port, duration) == (4, "cpu", 1, 120.0)
    assert [(s.fault, s.rank, s.onset, s.duration) for s in schedule] == [("slow_rank", 3, 20.0, 30.0)]
    assert done.stdout.splitlines()[0] == "http://127.0.0.1:1"


def test_a_vllm_cluster_is_an_option_away(ran: list[Any]) -> None:
    """MoE and one API server without further words; --dense serves a dense model."""
    for arguments in ([], ["--dense", "--api-servers", "4"]):
        assert CliRunner().invoke(app, ["workload", "run", "--engine", "vllm", *arguments]).exit_code == 0
    (moe, _, _), (dense, _, _) = ran
    assert (moe.vllm.moe, moe.vllm.api_servers, moe.model_name) == (True, 1, "glm-5-like")
    assert (dense.vllm.moe, dense.vllm.api_servers, dense.model_name) == (False, 4, "glm-4-32b-like")


def test_card_and_experts_arrive(ran: list[Any]) -> None:
    """A card with as much KV as it has room for, a skew and a dispatch; without the options the configuration's own."""
    assert CliRunner().invoke(app, ["workload", "run"]).exit_code == 0
    arguments = ["--card", "H100", "--expert-skew", "1.5", "--dispatch", "low-latency"]
    done = CliRunner().invoke(app, ["workload", "run", *arguments])
    assert done.exit_code == 0, done.output
    (plain, _, _), (asked, _, _) = ran
    assert plain == ClusterConfig()
    assert (asked.card, asked.experts.skew, asked.experts.dispatch) == ("H100", 1.5, "low_latency")
    # 80 GB at 90 %, less 84/141 of it for weights, over 44,928 bytes a token
    assert asked.limits.kv_tokens == int((0.9 - 84 / 141) * 80e9 / 44_928)
    help_text = CliRunner().invoke(app, ["workload", "run", "--help"]).output
    assert all(re.search(rf"\b{re.escape(card)}\b", help_text) for card in CARDS)


def test_a_simulation_takes_card_and_experts_too(tmp_path: Any) -> None:
    """The capture of two B200 says what they are, in virtual time with a low-latency dispatch."""
    out = tmp_path / "b200.slowrank"
    arguments = ["--ranks", "2", "--for", "5s", "--card", "B200", "--dispatch", "low-latency", "--expert-skew", "2", "-o", str(out)]
    done = CliRunner().invoke(app, ["workload", "simulate", *arguments])
    assert done.exit_code == 0, done.output
    assert b"NVIDIA B200 (virtual)" in gzip.decompress(out.read_bytes())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--dense"], "--dense: only a vLLM cluster has it"),
        (["--api-servers", "2"], "--api-servers: only a vLLM cluster has it"),
        (["--engine", "vllm", "--router", "total_tokens"], "--router total_tokens: vLLM deals by its own score alone"),
        (["--engine", "vllm", "--dense", "--device", "cpu"], "use device 'virtual'"),
        (["--engine", "vllm", "--dense", "--fault", "expert_hotspot:rank=1"], "a dense model has no experts"),
        (["--engine", "vllm", "--dense", "--expert-skew", "1"], "--expert-skew: a dense model has no experts"),
        (["--card", "H2000"], "--card: no card 'H2000'; did you mean 'H200'?"),
        (["--card", "H200", "--device", "cpu"], "--card: device 'cpu' computes on what is there"),
        (["--dispatch", "low-latency", "--device", "cpu"], "--dispatch: device 'cpu' computes on what is there"),
        (["--dispatch", "low_latency"], "is not one of 'normal', 'low-latency'"),
        (["--expert-skew", "-1"], "greater than or equal to 0"),
    ],
)
def test_options_of_the_other_engine_are_refused(ran: list[Any], arguments: list[str], said: str) -> None:
    """Exit 2 and the next step; nothing was started."""
    done = CliRunner().invoke(app, ["workload", "run", *arguments])
    assert done.exit_code == 2
    assert said in " ".join(done.output.split())
    assert ran == []


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("slow_rnk:rank=1", "did you mean slow_rank?"),
        ("slow_rank", "add rank=0 to rank=7"),
        ("slow_rank:rank=8", "add rank=0 to rank=7"),
        ("slow_rank:rank=x", "rank must be a number"),
        ("slow_rank:rnk=1", "'rnk' is not one of"),
    ],
)
def test_a_slip_in_a_fault_is_found_before_the_start(ran: list[Any], fault: str, said: str) -> None:
    """Exit 2, what was seen and the next step, and nothing was started."""
    done = CliRunner().invoke(app, ["workload", "run", "--fault", fault])
    assert done.exit_code == 2
    assert said in done.stderr
    assert ran == []


def test_a_scenario_says_it_all(ran: list[Any]) -> None:
    """Ranks, faults and duration come from the scenario; --for, --port and --labels may be given beside it, nothing else."""
    done = CliRunner().invoke(app, ["workload", "run", "--scenario", "two_overlapping", "--port", "1"])
    assert done.exit_code == 0, done.output
    ((config, schedule, duration),) = ran
    assert (config.ranks, config.port, duration) == (8, 1, 60.0)
    assert [(s.fault, s.rank) for s in schedule] == [("request_count_skew", 6), ("link_degraded", 0)]
    assert CliRunner().invoke(app, ["workload", "run", "--scenario", "slow_rank", "--for", "5s"]).exit_code == 0
    assert ran[1][2] == 5.0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--scenario", "slow_rnk"], "did you mean 'slow_rank'?"),
        (["--scenario", "gone.toml"], "gone.toml: cannot be read"),
        (["--scenario", "slow_rank", "--ranks", "4"], "--ranks and --scenario: the scenario says it already"),
    ],
)
def test_a_wrong_scenario_is_found_before_the_start(ran: list[Any], arguments: list[str], said: str) -> None:
    """Exit 2 with the next step, and nothing was started."""
    done = CliRunner().invoke(app, ["workload", "run", *arguments])
    assert done.exit_code == 2
    assert said in done.stderr
    assert ran == []


def test_scenarios_are_listed_with_what_they_are_about() -> None:
    """Every bundled scenario has its line."""
    from workload.scenario import bundled, load

    done = CliRunner().invoke(app, ["workload", "scenarios"])
    assert done.exit_code == 0
    assert [line.split(maxsplit=1) for line in done.output.splitlines()] == [[name, load(name).about] for name in bundled()]


def test_a_scenario_is_drawn_and_simulated(tmp_path: Any) -> None:
    """A picture and a capture, with nothing started; what virtual time does not play is refused."""
    scenario = tmp_path / "mine.toml"
    scenario.write_text("ranks = 2\nduration = 5")
    done = CliRunner().invoke(app, ["workload", "plot", str(scenario), "-o", str(tmp_path)])
    assert (done.exit_code, done.stdout) == (0, f"{tmp_path / 'mine.svg'}\n")
    done = CliRunner().invoke(app, ["workload", "simulate", "--scenario", str(scenario), "-o", str(tmp_path / "mine.slowrank")])
    assert done.exit_code == 0, done.output
    assert "of 2 ranks over 5 s" in " ".join(done.stdout.split())
    mixed = tmp_path / "mixed.toml"
    mixed.write_text("ranks = 2\nduration = 5\n[engine]\nmixed = true")
    for command in (
        ["plot", str(mixed), "-o", str(tmp_path)],
        ["simulate", "--scenario", str(mixed), "-o", str(tmp_path / "mixed")],
    ):
        done = CliRunner().invoke(app, ["workload", *command])
        assert done.exit_code == 2
        assert "virtual time does not play" in done.stderr
