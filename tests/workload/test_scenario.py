"""Scenario files: what they say arrives, and what they say wrongly is refused with file, key and the nearest valid name."""

from __future__ import annotations

from pathlib import Path

import pytest

from workload import faults
from workload.config import ClosedLoop, OpenLoop, VllmFlags
from workload.plot import draw
from workload.scenario import ScenarioError, bundled, load, parse
from workload.schedule import Scheduled
from workload.traffic.presets import AGENT

WHOLE = """
about = "All keys."
ranks = 4
device = "virtual"
card = "H200"
router = "total_tokens"
traffic = "agent"
seed = 7
duration = 30

[engine]
publish_every = 5
speculation = { steps = 2 }

[limits]
chunk_tokens = 512

[budget]
skip_same = false

[[fault]]
name = "slow_rank"
rank = 3
onset = 5
ramp = 2.5
duration = 10
severity = 0.5

[[fault]]
name = "short_burst"
"""


def read(text: str, beside: Path = Path()):
    return parse(text, "case.toml", "case", beside)


def test_every_key_arrives():
    """Names, tables within tables, faults and harmless events come out as the values that they stand for."""
    found = read(WHOLE)
    config = found.config
    assert (found.about, found.duration, config.ranks, config.card, config.method, config.seed) == (
        "All keys.",
        30,
        4,
        "H200",
        "total_tokens",
        7,
    )
    assert config.traffic == AGENT
    assert config.engine.publish_every == 5
    assert config.engine.speculation is not None
    assert (config.engine.speculation.steps, config.engine.speculation.accept) == (2, 0.7)
    assert config.limits.chunk_tokens == 512
    assert config.budget.skip_same is False
    assert found.schedule == (Scheduled("slow_rank", 3, 5.0, 10.0, 0.5, 2.5), Scheduled("short_burst"))


def test_what_is_left_out_is_as_elsewhere():
    """An empty file is the default cluster for a minute, without a fault."""
    found = read("")
    assert (found.config.ranks, found.duration, found.schedule) == (8, 60.0, ())
    assert found.config.traffic is not None
    assert found.config.traffic.arrivals == ClosedLoop()


def test_traffic_may_be_a_table_or_a_recording(tmp_path):
    """A table is a `Traffic`; a recording is looked for beside the scenario."""
    table = '[traffic]\narrivals = { type = "open", rate = 2.0 }\nprompt = { median = 9, sigma = 0, low = 9, high = 9 }\n'
    table += "output = { median = 5, sigma = 0, low = 5, high = 5 }\n"
    with pytest.raises(ScenarioError, match="fresh"):
        read(table)
    traffic = read(table + "fresh = { median = 3, sigma = 0, low = 3, high = 3 }").config.traffic
    assert traffic is not None
    assert traffic.arrivals == OpenLoop(2.0)
    (tmp_path / "day.csv").write_text("time,input,output\n0,100,10\n")
    config = read('traffic = "day.csv"', tmp_path).config
    assert config.traffic is None
    assert config.replay == str(tmp_path / "day.csv")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("rank = 3", "case.toml, unknown key 'rank'; did you mean 'ranks'?"),
        ("method = 'round_robin'", "unknown key 'method'"),
        ("ranks = 1", "1 ranks: a data-parallel group has at least 2"),
        ("ranks = '8'", "Expected `int`, got `str` - at `ranks`"),
        ("duration = -1", "case.toml, duration: -1"),
        ("duration = nan", "case.toml, duration: nan"),
        ("duration = true", "case.toml, duration: True is not a number"),
        ("about = 3", "case.toml, about: 3 is not a text"),
        ("router = 'total_token'", "case.toml, router: 'total_token' is not one of .*did you mean 'total_tokens'?"),
        ("device = 'vitual'", "case.toml, device: .*did you mean 'virtual'?"),
        ("card = 'H201'", "no card 'H201'; did you mean"),
        ("traffic = 'chap'", "case.toml, traffic: no traffic 'chap'; did you mean chat?"),
        ("traffic = 'gone.csv'", "case.toml, traffic: gone.csv: cannot be read"),
        ("[traffic]\narrivals = {type = 'open', rat = 3}", "case.toml, traffic.arrivals: unknown key 'rat'; did you mean 'rate'?"),
        ("[engine]\nspeculatoin = {}", "case.toml, engine: unknown key 'speculatoin'; did you mean 'speculation'?"),
        ("[engine]\nspeculation = {step = 3}", "case.toml, engine.speculation: unknown key 'step'; did you mean 'steps'?"),
        ("[engine]\nmixed = true\nspeculation = {}", "mixed prefill and speculation together"),
        ("fault = 3", "write each as a table under"),
        ("[[fault]]\nrank = 1", "case.toml, fault 1: name is missing"),
        ("[[fault]]\nname = 'slow_rnk'\nrank = 1", "case.toml, fault 1: there is no fault 'slow_rnk'; did you mean slow_rank?"),
        ("[[fault]]\nname = 'slow_rank'", "case.toml, fault 1: slow_rank: acts on one of ranks 0 to 7, not on None"),
        ("[[fault]]\nname = 'slow_rank'\nrank = 8", "not on 8"),
        ("[[fault]]\nname = 'slow_rank'\nrank = 1.5", "fault 1, rank: 1.5 is not a whole number"),
        ("[[fault]]\nname = 'slow_rank'\nrank = 1\nonset = nan", "case.toml, fault 1: onset nan"),
        ("[[fault]]\nname = 'slow_rank'\nrank = 1\nonset = 60", "is not there before 60 s, and the run lasts 60 s"),
        ("[[fault]]\nname = 'slow_rank'\nrank = 1\nonsett = 6", "case.toml, fault 1: unknown key 'onsett'; did you mean 'onset'?"),
        ("[[fault]]\nname = 'slow_rank'\nrank = 1\nseverity = '1'", "fault 1, severity: '1' is not a number"),
        ("[[fault]]\nname = 'speculation_skew'\nrank = 1", "speculation_skew: the engine does not speculate"),
        ("[[fault]]\nname = 'pd_queue_skew'\nrank = 1", "pd_queue_skew: the engine is not split"),
        ("device = 'cpu'\n[[fault]]\nname = 'gpu_throttled'\nrank = 1", "cannot be made on device cpu, only on virtual"),
        ("traffic = 'bursty'\n[[fault]]\nname = 'prefix_cache_skew'\nrank = 1", "nothing of this traffic is cached"),
        ("[[fault]]\nname = 'slow_rank'\nrank = 1\n[[fault]]\nname = 'slow_rank'\nrank = 1\nonset = 5", "fault 2: slow_rank: acts twice"),
        ("ranks = ", "case.toml: not TOML"),
        ("[vllm]\nmo = true", "case.toml, vllm: unknown key 'mo'; did you mean 'moe'?"),
        ("router = 'total_tokens'\n[vllm]\nmoe = true", "case.toml, router: SGLang's alone; a scenario with .vllm. has none"),
        ("[vllm]\nmoe = true\n[engine]\nmixed = true", "case.toml, engine: SGLang's alone"),
        ("[vllm]\nmoe = false\n[[fault]]\nname = 'expert_hotspot'\nrank = 1", "fault 1: expert_hotspot: a dense model has no experts"),
        ("device = 'cpu'\n[vllm]\nmoe = false", "only virtual cards can step alone"),
    ],
)
def test_a_slip_is_refused_by_name(text, said):
    """Each error names the file, the key and the next step; nothing has started."""
    with pytest.raises(ScenarioError, match=said.replace("?", r"\?")):
        read(text)


def test_a_file_and_a_bundled_name_are_found(tmp_path):
    """A .toml is a file, anything else a bundled scenario; both may be missing."""
    path = tmp_path / "mine.toml"
    path.write_text("ranks = 3")
    assert (load(str(path)).name, load(str(path)).config.ranks) == ("mine", 3)
    with pytest.raises(ScenarioError, match=r"gone\.toml: cannot be read"):
        load(str(tmp_path / "gone.toml"))
    with pytest.raises(ScenarioError, match="did you mean 'slow_rank'"):
        load("slow_rnk")


def test_a_vllm_cluster_is_a_table_away():
    """MoE ranks that step together serve the MoE model, dense ones theirs; the table alone makes it vLLM."""
    moe, dense = load("vllm_moe_late_rank"), load("vllm_dense_throttled_card")
    assert moe.config.vllm == VllmFlags(moe=True)
    assert dense.config.vllm == VllmFlags(moe=False, api_servers=4)
    assert (moe.config.model_name, dense.config.model_name) == ("glm-5-like", "glm-4-32b-like")
    assert [(s.fault, s.rank) for s in (*moe.schedule, *dense.schedule)] == [("slow_rank", 5), ("gpu_throttled", 2)]
    assert read("").config.vllm is None


def test_a_vllm_cluster_is_not_drawn(tmp_path):
    """Its pages have no waits and pairs: said before anything starts, in real time too."""
    for in_real_time in (False, True):
        with pytest.raises(ValueError, match="no picture; run it and read /metrics"):
            draw(load("vllm_moe_late_rank"), tmp_path, in_real_time=in_real_time)


@pytest.mark.parametrize("name", bundled())
def test_every_bundled_scenario_is_sound(name):
    """It can be played, says what it is about, and does so within two minutes."""
    found = load(name)
    assert found.about.endswith(".")
    assert found.duration <= 120
    assert "nothing is wrong" in found.about or {s.fault for s in found.schedule} <= set(faults.load())
