"""Which servers make one engine, by the labels that relabelling left; nothing is guessed."""

from __future__ import annotations

from collector.prometheus.fleet import Fleet, arrange, plain
from collector.prometheus.owners import Owners, exported_engines
from collector.prometheus.queries import QUERIES, Kept, query_of

WHERE = "http://p"


def series(instance: str, ranks: range, **more: str) -> list[tuple[Kept, dict[str, str]]]:
    common = {"__name__": "sglang:scheduler_process_cpu_seconds_total", "model_name": "m", "engine_type": "unified", "instance": instance}
    return [(Kept.SGLANG_METRICS, {**common, "dp_rank": str(rank), "tp_rank": str(rank), **more}) for rank in ranks]


def names(fleet: Fleet) -> list[str]:
    return [engine.id for engine in fleet.engines]


def test_nodes_with_other_ranks_are_one_engine() -> None:
    """Ranks 0-7 here and 8-15 there."""
    assert names(arrange([*series("a:1", range(8)), *series("b:1", range(8, 16))], WHERE)) == ["a:1,b:1"]


def test_servers_with_the_same_ranks_are_several_engines() -> None:
    """Each has a rank 0."""
    fleet = arrange([*series("a:1", range(8)), *series("b:1", range(8))], WHERE)
    assert (names(fleet), fleet.problems) == (["a:1", "b:1"], ())


def test_roles_and_models_never_mix() -> None:
    """A prefill and a decode server, and another model, are engines of their own, whatever their ranks."""
    fleet = arrange(
        [*series("a:1", range(2), engine_type="prefill"), *series("b:1", range(2, 4)), *series("c:1", range(4, 6), model_name="n")], WHERE
    )
    assert names(fleet) == ["a:1", "b:1", "c:1"]


def test_a_label_tells_engines_of_two_nodes_apart() -> None:
    """The coarsest label by which each rank is there once and each part has a rank 0."""
    both = [("x", "a:1", range(2)), ("x", "b:1", range(2, 4)), ("y", "c:1", range(2)), ("y", "d:1", range(2, 4))]
    fleet = arrange([one for group, node, ranks in both for one in series(node, ranks, group=group, pod=node)], WHERE)
    assert names(fleet) == ["a:1,b:1", "c:1,d:1"]


def test_engines_that_no_label_tells_apart_are_refused() -> None:
    """Two engines of two nodes: the message names the ranks, the labels that differ and what to do. Another model goes on."""
    four = [("a:1", range(2)), ("b:1", range(2, 4)), ("c:1", range(2)), ("d:1", range(2, 4))]
    found = [one for node, ranks in four for one in series(node, ranks)]
    fleet = arrange([*found, *series("e:1", range(2), model_name="n")], WHERE)
    assert names(fleet) == ["e:1"]
    (problem,) = fleet.problems
    assert "4 servers of m (unified) hold ranks 0-3 more than once" in problem.what
    assert "the labels instance differ" in problem.then
    assert "--match" in problem.then


def test_two_clusters_with_the_same_addresses() -> None:
    """A cluster label separates what an address does not, and is in the names."""
    fleet = arrange([*series("a:1", range(2), cluster="x"), *series("a:1", range(2), cluster="y")], WHERE)
    assert names(fleet) == ["cluster=x/a:1", "cluster=y/a:1"]


def test_replicas_of_prometheus_are_one() -> None:
    """The first replica's series are taken, the others have no owner, and it is said."""
    found = [*series("a:1", range(2), replica="r0"), *series("a:1", range(2), replica="r1")]
    fleet = arrange(found, WHERE)
    assert names(fleet) == ["a:1"]
    assert "1 targets are there once for each replica" in fleet.problems[0].what
    owners = Owners(fleet.engines, ("instance", "replica"))
    assert [owners.of(*one) is not None for one in found] == [True, True, False, False]


def test_a_target_that_two_jobs_scrape() -> None:
    """It is one engine, and it is said that it costs twice."""
    fleet = arrange([*series("a:1", range(2), job="x"), *series("a:1", range(2), job="y")], WHERE)
    assert names(fleet) == ["a:1"]
    assert "scraped by the jobs 'x' and 'y'" in fleet.problems[0].what


def test_series_without_a_rank_belong_to_the_server_at_their_address() -> None:
    """/v1/loads is scraped by another job of the same instance; one that is nowhere else has no owner."""
    fleet = arrange(series("a:1", range(2), job="metrics", cluster="x"), WHERE)
    owners = Owners(fleet.engines, ("instance", "job", "cluster"))
    loads = {"__name__": "sglang_num_waiting_reqs", "dp_rank": "1", "instance": "a:1", "job": "loads", "cluster": "x"}
    found = owners.of(Kept.SGLANG_LOADS, loads)
    assert found is not None
    assert found[0].id == "a:1"
    assert owners.of(Kept.SGLANG_LOADS, {**loads, "instance": "b:1"}) is None
    assert owners.of(Kept.SGLANG_LOADS, {**loads, "cluster": "y"}) is None


def test_slowrank_s_own_page_names_engines_as_they_were_given() -> None:
    """With or without a scheme; a name that no other series has is an engine by itself."""
    fleet = arrange(series("a:1", range(2)), WHERE)
    found = exported_engines(fleet.engines, ["http://a:1", "b:1"])
    assert found["http://a:1"] is fleet.engines[0]
    assert found["b:1"].id == "b:1"


def test_labels_pushed_aside_come_back() -> None:
    """Prometheus renames a scraped label that the target has too."""
    assert plain({"engine": "prod", "exported_engine": "3", "exported_job": "x"}) == {"engine": "3", "exported_job": "x"}


def test_every_series_has_one_query() -> None:
    """/metrics and /v1/loads share names once ':' became '_': tp_rank tells which it is."""
    gauge = query_of({"__name__": "sglang_num_running_reqs", "tp_rank": "0"})
    field = query_of({"__name__": "sglang_num_running_reqs", "dp_rank": "0"})
    assert gauge is not None
    assert field is not None
    assert (gauge.kept, field.kept) == (Kept.SGLANG_GAUGES, Kept.SGLANG_LOADS)
    assert query_of({"__name__": "up"}) is None
    assert len({query.name for query in QUERIES}) == len(QUERIES)
