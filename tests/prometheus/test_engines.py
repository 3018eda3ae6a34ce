"""Which series are one node, and which nodes are one engine."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.prometheus.answer import Series, joined
from collector.prometheus.engines import engines
from collector.prometheus.nodes import nodes


def series(instance, rank, name="sglang:scheduler_process_cpu_seconds_total", samples=3, **labels):
    page = {"engine": str(rank)} if name.startswith("vllm") else {"dp_rank": str(rank), "tp_rank": str(rank)}
    times = np.arange(samples, dtype=np.int64) * 1000
    return Series(name, {**page, "model_name": "m", "instance": instance, "job": "j"} | labels, times, np.arange(samples, dtype=float))


def node(instance, ranks, **labels):
    return [series(instance, rank, **labels) for rank in ranks]


def found(*many):
    problems = []
    made = engines(nodes(itertools.chain(*many), problems, "http://p"), problems)
    return [engine.id for engine in made], problems


def test_nodes_that_number_their_ranks_together_are_one_engine():
    """Ranks 0-3 and 4-7 of one model: node 0 first, as a person would type it."""
    assert found(node("b:1", range(4, 8)), node("a:1", range(4)))[0] == ["a:1,b:1"]


def test_servers_that_each_begin_with_rank_0_are_engines_of_their_own():
    """Two replicas of a model share no clock."""
    ids, problems = found(node("a:1", range(8)), node("b:1", range(8)))
    assert (ids, problems) == (["a:1", "b:1"], [])


def test_another_model_or_role_is_another_engine():
    """Ranks that would fit together do not join a prefill and a decode server, nor two models."""
    ids, _ = found(node("a:1", [0], engine_type="prefill"), node("b:1", [1], engine_type="decode"), node("c:1", [1], model_name="n"))
    assert ids == ["a:1", "b:1", "c:1"]


def test_a_label_of_the_scrape_separates_engines_of_several_nodes():
    """Two deployments of two nodes each, which only `deployment` tells apart; pod, which names the node itself, tells nothing."""
    many = [node(f"{d}{k}:1", [k], deployment=d, pod=f"{d}-{k}") for d in "ab" for k in (0, 1)]
    ids, problems = found(*many)
    assert (ids, problems) == (["a0:1,a1:1", "b0:1,b1:1"], [])


def test_nodes_that_could_be_of_either_engine_are_refused():
    """Nothing tells which second node belongs to which first: no guess, and the message says what would."""
    ids, (problem,) = found(*[node(f"{d}{k}:1", [k]) for d in "ab" for k in (0, 1)], node("z:1", [0], model_name="other"))
    assert ids == ["z:1"]
    assert "no label tells which of 4 nodes are one engine" in problem.what
    assert "a0:1 has rank 0" in problem.what
    assert "--match" in problem.then


def test_labels_that_disagree_are_refused():
    """`zone` and `stack` both would separate, each in another way: a person has to say."""
    places = [("a0", 0, "x", "1"), ("a1", 1, "x", "2"), ("b0", 0, "y", "2"), ("b1", 1, "y", "1")]
    ids, (problem,) = found(*[node(f"{i}:1", [rank], zone=zone, stack=stack) for i, rank, zone, stack in places])
    assert ids == []
    assert "stack, zone group them differently" in problem.what


def test_the_same_address_in_two_clusters_is_two_engines():
    """Their ids name the label that tells them apart."""
    ids, problems = found(node("a:1", range(2), cluster="x"), node("a:1", range(2), cluster="y"))
    assert (ids, problems) == (['a:1{cluster="x"}', 'a:1{cluster="y"}'], [])


@pytest.mark.parametrize("label", ["replica", "prometheus_replica", "job"])
def test_what_is_scraped_twice_is_read_once(label):
    """A pair of servers, or two jobs: the copy with most samples, and a note."""
    twice = [node("a:1", range(2), samples=n, **{label: value}) for n, value in ((3, "a"), (5, "b"))]
    problems = []
    (one,) = nodes(itertools.chain(*twice), problems, "http://p")
    assert one.samples == 10
    assert f"scraped 2 times, told apart by {label}" in problems[0].what


def test_a_label_that_the_server_renamed_is_the_pages_again():
    """A scrape that sets `engine` itself pushes vLLM's own into exported_engine."""
    many = [series("a:1", k, "vllm:num_requests_running", engine="fleet", exported_engine=str(k)) for k in (0, 1)]
    (one,) = nodes(many, [], "http://p")
    assert one.ranks == {0, 1}
    assert ("engine", "fleet") in one.target


def test_the_labels_of_vllms_configuration_stay_on_its_page():
    """cache_config_info carries its message in labels of any name; they make no target of their own."""
    info = series("a:1", 0, "vllm:cache_config_info", block_size="16", kv_cache_size_tokens="1000")
    (one,) = nodes([series("a:1", 0, "vllm:num_requests_running"), info], [], "http://p")
    assert [s.labels.get("kv_cache_size_tokens") for s in one.series] == [None, "1000"]


def test_series_without_an_instance_are_told():
    """An aggregation dropped it: nodes cannot be told apart."""
    lost = series("a:1", 0)
    problems = []
    assert nodes([Series(lost.name, {"dp_rank": "0"}, lost.times, lost.values)], problems, "http://p") == []
    assert "without the label instance" in problems[0].what


@given(st.sets(st.integers(0, 50), min_size=1), st.sets(st.integers(0, 50), max_size=3))
def test_pieces_joined_are_the_whole(times, cuts):
    """However a span is cut, with both ends of each piece in it, its pieces join to what was cut."""
    whole = np.array(sorted(times), dtype=np.int64)
    edges = [-1, *sorted(cuts), 51]
    parts = [whole[(whole >= low) & (whole <= high)] for low, high in itertools.pairwise(edges)]
    made = joined([Series("x", {}, part, part * 2.0) for part in parts])
    assert made.times.tolist() == whole.tolist()
    assert made.values.tolist() == (whole * 2.0).tolist()
