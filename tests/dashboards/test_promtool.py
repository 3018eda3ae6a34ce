"""The rules in Prometheus' own test bench: alerts fire, stay silent and resolve; recorded values are those of the arithmetic."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote_plus

import pytest

from dashboards import build
from dashboards.alerting import health
from diagnose.rules import load

ENGINE = 'http://a"b\\{{ printf "x" }}:30000'
"""A name that would break out of PromQL, of a template or of an address, if one forgot to quote it."""


@pytest.fixture
def bench(server_binary, tmp_path):
    """bench(group, ...): run promtool's unit tests over the rule file; fails with what promtool says."""
    binary, _ = server_binary("promtool")
    build.write(build.rule_files(), tmp_path)

    def run(*groups: dict[str, Any]) -> None:
        # JSON is YAML; the order of evaluation is that of the file, as in Prometheus
        (tmp_path / "test.yaml").write_text(
            json.dumps({"rule_files": ["slowrank.rules.yaml"], "evaluation_interval": "15s", "tests": groups})
        )
        done = subprocess.run(
            [binary, "test", "rules", "test.yaml"], cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False
        )
        assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]

    return run


def named(name: str, **labels: str) -> str:
    return name + "{" + ",".join(f"{k}={json.dumps(v)}" for k, v in labels.items()) + "}"


def series(values: str, name: str, **labels: str) -> dict[str, str]:
    return {"series": named(name, **labels), "values": values}


def at(when: str, name: str, *alerts: dict[str, Any]) -> dict[str, Any]:
    return {"eval_time": when, "alertname": name, "exp_alerts": list(alerts)}


def test_prometheus_takes_the_file(server_binary, tmp_path):
    """`promtool check rules`: syntax, durations, templates, no two rules alike."""
    binary, _ = server_binary("promtool")
    for runbooks in ("", "https://runbooks.example"):
        (tmp_path / "r.yaml").write_text(build.rule_files(runbooks)["slowrank.rules.yaml"])
        done = subprocess.run([binary, "check", "rules", "--lint-fatal", tmp_path / "r.yaml"], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_bench_can_fail(bench):
    """An alert that is expected and does not come is an error."""
    with pytest.raises(AssertionError, match="slowrank_slow_rank"):
        bench(
            {
                "interval": "1m",
                "input_series": [],
                "alert_rule_test": [at("5m", "slowrank_slow_rank", {"exp_labels": {"severity": "page"}})],
            }
        )


def test_each_finding_has_its_alert(bench):
    """Suspected is silent. Confirmed fires, with ranks, cost and remedy as text and none of them in labels; other causes stay silent. It
    outlasts five minutes in which slowrank is away, and resolves after."""
    rules = load()
    groups = []
    for k, rule in enumerate(rules.values()):
        other = list(rules)[(k + 1) % len(rules)]
        labels = {"class": rule.klass.value, "severity": rule.severity.value}
        told = {
            "exp_labels": {**labels, "engine": ENGINE},
            "exp_annotations": {
                "summary": f"{ENGINE}: {rule.title}",
                "ranks": "11 2 ",  # as text: templates sort no numbers
                "lost": "18% of step time",
                "remedy": rule.remedy,
                "runbook": f"slowrank explain {rule.id}",
                "dashboard": f"/d/slowrank-diagnosis?var-engine={quote_plus(ENGINE)}",
            },
        }
        no_figure = {**told, "exp_annotations": {**told["exp_annotations"], "ranks": "none named now", "lost": "no figure"}}
        incident = {"engine": ENGINE, "cause": rule.id, **labels}
        groups.append(
            {
                "interval": "1m",
                "input_series": [
                    series("1x2 stale", "slowrank_incident", **incident, state="suspected"),
                    series("_x3 2x5 stale", "slowrank_incident", **incident, state="confirmed"),
                    series("1x7 stale", "slowrank_culprit", engine=ENGINE, rank="11", cause=rule.id),
                    series("1x7 stale", "slowrank_culprit", engine=ENGINE, rank="2", cause=rule.id),
                    series("1x7", "slowrank_culprit", engine="another", rank="3", cause=rule.id),
                    series("0.18x7 stale", "slowrank_lost_time_ratio", engine=ENGINE, cause=rule.id),
                ],
                "alert_rule_test": [
                    at("2m", f"slowrank_{rule.id}"),
                    at("5m", f"slowrank_{rule.id}", told),
                    at("5m", f"slowrank_{other}"),
                    at("12m30s", f"slowrank_{rule.id}", no_figure),
                    at("14m", f"slowrank_{rule.id}"),
                ],
            }
        )
    bench(*groups)


HEALTH: dict[str, tuple[list[dict[str, str]], str, str, str, dict[str, str], str]] = {
    "slowrank_absent": (
        [series("1x2 stale _x7 1x9", "slowrank_build_info", version="1")],  # away from 3 min to 11 min
        "7m", "9m", "12m", {"severity": "ticket"}, "No slowrank is scraped: nobody looks for slow ranks",
    ),
    "slowrank_engine_unread": (
        [series("1x2 0x5 1x5", "slowrank_engine_up", engine="e"), series("1x20", "slowrank_engine_up", engine="f")],
        "4m", "6m", "10m", {"severity": "ticket", "engine": "e"}, "e: no usable page comes from this engine",
    ),
    "slowrank_diagnosis_stale": (
        [series("0x9 600x9", "slowrank_diagnosis_timestamp_seconds", engine="e")],  # the bench's clock begins at 0
        "6m", "8m", "11m", {"severity": "ticket", "engine": "e"}, "e: the last verdict is 8m 0s old",
    ),
    "slowrank_rule_failing": (
        [series("_x3 1x30", "slowrank_rule_failures_total", rule="slow_rank")],  # its first failure makes the series
        "2m", "4m", "15m", {"severity": "ticket", "rule": "slow_rank"},
        "The diagnosis rule slow_rank raises an error: its cause cannot be found",
    ),
    "slowrank_watch_broke": (
        [series("1x12 2x30", "slowrank_engine_breakages_total", engine="e"), series("1x40", "slowrank_engine_breakages_total", engine="f")],
        "12m", "14m", "24m", {"severity": "ticket", "engine": "e"}, "e: the watch of this engine broke and began anew",
    ),
    "slowrank_delivery_stuck": (
        [
            series("0x1 2x14 0x5", "slowrank_outbox_pending", receiver="am"),
            series("0x1 2 0x20", "slowrank_outbox_pending", receiver="hook"),
        ],
        "11m", "14m", "18m", {"severity": "page", "receiver": "am"}, "Alerts wait for am: people are not told",
    ),
    "slowrank_scrapes_late": (
        [
            series("0+60x12 720x20", "slowrank_scrape_late_seconds_sum", engine="e", source="loads"),
            series("0+60x32", "slowrank_scrape_late_seconds_count", engine="e", source="loads"),
            series("0+20x32", "slowrank_scrape_late_seconds_sum", engine="f", source="loads"),  # a third of a second late
            series("0+60x32", "slowrank_scrape_late_seconds_count", engine="f", source="loads"),
        ],
        "10m", "12m", "22m", {"severity": "note", "engine": "e"}, "e: pages are asked for 1s late on average",
    ),
    "slowrank_reload_failed": (
        [
            series("_x2 1x40", "slowrank_config_reloads_total", outcome="refused"),
            series("0+1x40", "slowrank_config_reloads_total", outcome="ok"),
        ],
        "1m", "4m", "20m", {"severity": "ticket", "outcome": "refused"},
        "slowrank did not take its changed configuration and goes on with the old one",
    ),
    "slowrank_cannot_tell": (
        [
            series("1x70 stale", "slowrank_verdict", **{"engine": "e", "class": "insufficient-evidence", "cause": "", "severity": "note"}),
            series("1x90", "slowrank_verdict", **{"engine": "f", "class": "insufficient-evidence", "cause": "whole_group_slow"}),
            series("1x90", "slowrank_verdict", **{"engine": "g", "class": "healthy", "cause": "", "severity": "note"}),
        ],
        "59m", "62m", "72m", {"severity": "note", "engine": "e"}, "e: for an hour no verdict was possible",
    ),
}  # fmt: skip
"""Alert -> series by the minute, a time at which it must not fire, one at which it does, one at which it has resolved, labels, summary."""


def test_alerts_on_slowrank_itself_fire_and_resolve(bench):
    """Each at its time, for what it is about and nothing beside it."""
    rules = {rule.name: rule for rule in health()}
    assert set(HEALTH) == set(rules)
    groups = []
    for name, (given, silent, fires, over, labels, summary) in HEALTH.items():
        told = {
            "exp_labels": labels,
            "exp_annotations": {"summary": summary, "remedy": rules[name].annotations["remedy"], "dashboard": "/d/slowrank-itself"},
        }
        groups.append(
            {"interval": "1m", "input_series": given, "alert_rule_test": [at(silent, name), at(fires, name, told), at(over, name)]}
        )
    bench(*groups)


def test_an_alert_ends_with_its_incident(bench):
    """A slowrank that is there and has no such incident any more is not doubted: the alert resolves at once."""
    incident = {"engine": ENGINE, "class": "load", "cause": "context_length_skew", "severity": "ticket"}
    name = "slowrank_context_length_skew"
    bench(
        {
            "interval": "1m",
            "input_series": [
                series("2x3 stale", "slowrank_incident", **incident, state="confirmed"),
                series("1x20", "slowrank_engine_up", engine=ENGINE),
            ],
            "promql_expr_test": [
                {
                    "expr": f'count(ALERTS{{alertname="{name}",alertstate="firing"}})',
                    "eval_time": "3m",
                    "exp_samples": [{"labels": "{}", "value": 1}],
                },
                {"expr": f'count(ALERTS{{alertname="{name}",alertstate="firing"}})', "eval_time": "5m", "exp_samples": []},
            ],
        }
    )


def per_second(rate: float) -> str:
    """A counter that grows so, at points 15 s apart."""
    return f"0+{rate * 15:.9g}x20"


def recorded(record: str, scale: float, expected: Mapping[str, float], source: str, engine: str) -> dict[str, Any]:
    """The expected whole numbers by rank ("": of the engine); scaled and rounded, as the bench compares exactly."""
    where = {"engine": engine, "source": source}
    samples = [{"labels": named("", **where, **({"rank": rank} if rank else {})), "value": value} for rank, value in expected.items()]
    return {"expr": f"round({named(record, **where)} * {scale:g})", "eval_time": "3m", "exp_samples": samples}


WAITS = {"0": (21.4, 3.8), "1": (2.1, 23.1), "2": (1.6, 3.4), "3": (2.0, 23.2)}
"""ms per step in the control broadcast and the metadata exchange with rank 2 late: the measurement in docs/signals.md."""


@pytest.mark.parametrize("mark", [":", "_"])
def test_waits_of_sglang_name_the_late_rank(bench, mark):
    """Broadcast and exchange are added, whichever way the colon is spelled: rank 2 waits 5.0 ms and is 20.2 ms late; a step of 25 ms loses
    (20.15 - 5.0) / 25 = 60.6 % . A TP rank that reports nothing, and another pipeline stage, change nothing."""
    given = []
    for rank, (broadcast, exchange) in WAITS.items():
        own = {"instance": "h:1", "dp_rank": rank, "tp_rank": str(2 * int(rank)), "pp_rank": "0"}
        given += [
            series(per_second(40 * broadcast / 1e3), f"sglang{mark}scheduler_stage_seconds_total", **own, category="recv_requests"),
            series(per_second(9.0), f"sglang{mark}scheduler_stage_seconds_total", **own, category="run_batch"),
            series(per_second(40 * exchange / 1e3), f"sglang{mark}dp_attention_sync_wait_seconds_sum", **own),
            series(per_second(30), f"sglang{mark}dp_attention_steps_total", **own, rank_state="active"),
            series(per_second(10), f"sglang{mark}dp_attention_steps_total", **own, rank_state="idle"),
        ]
        silent = {**own, "tp_rank": str(2 * int(rank) + 1)}
        given += [
            series(per_second(1), f"sglang{mark}scheduler_stage_seconds_total", **silent, category="recv_requests"),
            series("0x20", f"sglang{mark}dp_attention_sync_wait_seconds_sum", **silent),
            series("0x20", f"sglang{mark}dp_attention_steps_total", **silent, rank_state="active"),
            series(per_second(999), f"sglang{mark}dp_attention_steps_total", **{**own, "pp_rank": "1"}, rank_state="active"),
        ]
    where = ("sglang", "http://h:1")
    expected = [
        recorded("rank:slowrank_wait_per_step_seconds:rate1m", 1e5, {"0": 2520, "1": 2520, "2": 500, "3": 2520}, *where),
        recorded("rank:slowrank_lateness_seconds:rate1m", 1e5, {"0": 0, "1": 0, "2": 2020, "3": 0}, *where),
        recorded("rank:slowrank_steps:rate1m", 1, dict.fromkeys(WAITS, 40), *where),
        recorded("engine:slowrank_host_lost_time:ratio", 1e3, {"": 606}, *where),
        recorded("engine:slowrank_ranks:count", 1, {"": 4}, *where),
    ]
    bench({"interval": "15s", "input_series": given, "promql_expr_test": expected})


def test_skew_is_that_of_the_reference_load(bench):
    """8 ranks of 4 requests of 8,192 tokens, one of 200,000 (204,800 with its peers) on rank 0: 229,376 pairs against 32,768: 7 to 1, four
    times the mean. From slowrank's own page, scraped twice."""
    given = []
    for rank in range(8):
        for instance in ("a:1", "b:1"):
            own = {"engine": "e", "rank": str(rank), "instance": instance}
            given += [
                series(per_second(20 * (229_376 if rank == 0 else 32_768)), "slowrank_attention_pairs_total", **own),
                series(per_second(20), "slowrank_steps_active_total", **own),
                series("0x20", "slowrank_steps_idle_total", **own),
            ]
    pairs = {str(rank): 229_376 if rank == 0 else 32_768 for rank in range(8)}
    expected = [
        recorded("rank:slowrank_pairs_per_step:rate1m", 1, pairs, "slowrank", "e"),
        recorded("engine:slowrank_pairs_skew:ratio", 1e3, {"": 4000}, "slowrank", "e"),
    ]
    bench({"interval": "15s", "input_series": given, "promql_expr_test": expected})


def test_servers_of_one_engine_are_joined_by_the_labels_of_the_scrape(bench):
    """Two vLLM servers that were each started alone call their engine 0: with slowrank_engine and slowrank_rank they are ranks 0 and 1 of
    one engine, without they are two engines. Step time is that of the measurement: 13 ms and 84 ms."""
    given = []
    for rank, step, port in (("0", 0.013, "1"), ("1", 0.084, "2")):
        for added in ({"slowrank_engine": "pool", "slowrank_rank": rank, "instance": f"h:{port}"}, {"instance": f"g:{port}"}):
            own = {"engine": "0", "model_name": "m", **added}
            given.append(series(per_second(50 * step), "vllm:inter_token_latency_seconds_sum", **own))
            given.append(series(per_second(50), "vllm:inter_token_latency_seconds_count", **own))
    record = "rank:slowrank_step_seconds:rate1m"
    expected = [
        recorded(record, 1e3, {"0": 13, "1": 84}, "vllm", "pool"),
        recorded(record, 1e3, {"0": 13}, "vllm", "http://g:1"),
        recorded(record, 1e3, {"0": 84}, "vllm", "http://g:2"),
    ]
    bench({"interval": "15s", "input_series": given, "promql_expr_test": expected})


def test_a_stopped_engine_has_no_step_time(bench):
    """Counters that stand still are no step of zero seconds and no healthy engine: nothing is recorded."""
    own = {"engine": "e", "rank": "0"}
    given = [
        series("7x20", f"slowrank_{name}", **own) for name in ("decode_time_seconds_total", "decode_steps_total", "steps_active_total")
    ]
    bench(
        {
            "interval": "15s",
            "input_series": given,
            "promql_expr_test": [recorded("rank:slowrank_step_seconds:rate1m", 1, {}, "slowrank", "e")],
        }
    )
