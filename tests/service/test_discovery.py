"""Engines that come and go: Prometheus' lists as text, as files and from a server; nodes joined to engines by what their pages say."""

from __future__ import annotations

import asyncio
import contextlib
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.errors import ConfigError
from collector.model import Page, Source
from diagnose.alerts.secret import Secret
from slowrank.discovery.grouping import Told, group
from slowrank.discovery.listing import Listing
from slowrank.discovery.probe import probe, told
from slowrank.discovery.sd import MAX_TARGETS, parse
from slowrank.discovery.sources import Files, Http
from slowrank.discovery.spec import EngineSpec, Found, Reach

CAPTURES = Path(__file__).parents[1] / "captures" / "sglang-0.5.23"


def listed(text: str, **how) -> list[Found]:
    return parse(text, "list", {}, Reach(), **how)


def test_prometheus_own_example_is_read():
    """The list of Prometheus' documentation of file_sd, in JSON and in YAML, gives the same targets."""
    as_json = '[{"targets": ["localhost:9090", "example-domain.com:443"], "labels": {"job": "mysql", "__meta_x": "y"}}]'
    as_yaml = "- targets:\n  - localhost:9090\n  - example-domain.com:443\n  labels:\n    job: mysql\n    __meta_x: y\n"
    assert listed(as_json) == listed(as_yaml, is_yaml=True)
    assert [(one.url, one.labels) for one in listed(as_json)] == [
        ("http://localhost:9090", (("job", "mysql"),)),
        ("http://example-domain.com:443", (("job", "mysql"),)),
    ]


def test_the_scheme_label_and_the_lists_labels_count():
    """`__scheme__` is Prometheus' way to say https; a label of the list beats one of the configuration."""
    (one,) = parse('[{"targets": ["a:1"], "labels": {"__scheme__": "https", "zone": "b"}}]', "l", {"zone": "a", "x": "y"}, Reach())
    assert (one.url, dict(one.labels)) == ("https://a:1", {"zone": "b", "x": "y"})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is no JSON"),
        ("{}", "not a list"),
        ("[1]", 'entry 1: has no "targets"'),
        ('[{"targets": ["a:1"]}, {"targets": [1]}]', "entry 2: the target 1 is no text"),
        ('[{"targets": ["a:1"], "labels": {"x": 1}}]', "labels must be names and texts"),
        ('[{"targets": ["a:1"], "labels": {"x y": "1"}}]', "labels must be names and texts"),
        ('[{"targets": ["a b"]}]', "entry 1: .*spaces"),
        ('[{"targets": ["u:p@a:1"]}]', "may not hold a user name"),
        (json.dumps([{"targets": [f"a:{k % 60000 + 1}" for k in range(MAX_TARGETS + 1)]}]), "more than 2000 targets"),
        ("[" * 100_000, "is no JSON"),
    ],
)
def test_a_bad_list_is_refused_whole(text, said):
    """The entry and what is wrong with it; nothing of the list is taken."""
    with pytest.raises(ConfigError, match=said):
        listed(text)


@given(st.text(max_size=200), st.booleans())
def test_any_text_is_a_list_or_refused(text, is_yaml):
    """Whatever a list's server answers."""
    with contextlib.suppress(ConfigError):
        listed(text, is_yaml=is_yaml)


def look(source) -> list[str]:
    asyncio.run(source.look())
    return [one.url for one in source.found]


def test_files_are_followed_and_a_broken_one_keeps_its_last_good_list(tmp_path):
    """A change is seen by the file's marks, a broken write says so and changes nothing, a deleted file takes its targets with it."""
    files = Files([str(tmp_path / "*.json")], {}, Reach())
    assert look(files) == []
    assert "no such file" in str(files.problems[0])
    one = tmp_path / "one.json"
    one.write_text('[{"targets": ["a:1"]}]')
    assert look(files) == ["http://a:1"]
    assert not files.problems
    one.write_text('[{"targets": ["a:1", "b:2"')
    assert look(files) == ["http://a:1"]
    assert "the last good list stays in force" in str(files.problems[0])
    assert "is no JSON" in str(files.problems[0])
    one.write_text('[{"targets": ["a:1", "b:2"]}]')
    (tmp_path / "two.json").write_text('[{"targets": ["c:3"]}]')
    assert look(files) == ["http://a:1", "http://b:2", "http://c:3"]
    assert not files.problems
    one.unlink()
    assert look(files) == ["http://c:3"]


def test_a_list_server_is_asked_with_its_token_and_its_failures_keep_the_last_list(serving):
    """http_sd: the token goes to the list's server; 500, garbage and a compressed bomb are told, and change nothing."""
    answers: list[tuple[int, bytes, dict[str, str]]] = [
        (200, b'[{"targets": ["a:1"]}]', {}),
        (500, b"", {}),
        (200, b"<html>", {}),
        (200, b"x" * (9 << 20), {}),
        (200, b'[{"targets": ["b:1"]}]', {}),
    ]

    async def play() -> tuple[list[list[str]], list[str], list[dict[str, str]]]:
        async with serving(answers) as server:
            source = Http(server.url + "/targets", 60.0, {}, Reach(Secret("list-token")), Reach())
            found, problems = [], []
            for _ in answers:
                await source.look()
                found.append([one.url for one in source.found])
                problems.append("; ".join(map(str, source.problems)))
            return found, problems, [headers for _, headers in server.asked]

    found, problems, heads = asyncio.run(play())
    assert found == [["http://a:1"]] * 4 + [["http://b:1"]]
    assert [bool(problem) for problem in problems] == [False, True, True, True, False]
    assert "HTTP 500" in problems[1]
    assert "is no JSON" in problems[2]
    assert "more than" in problems[3]
    assert heads[0]["authorization"] == "Bearer list-token"
    assert heads[0]["x-prometheus-refresh-interval-seconds"] == "60"


def sglang(ranks, whole=(), model="glm") -> Told:
    return Told("sglang", bool(whole), frozenset(ranks), frozenset(whole), model)


def nodes(*urls: str, **labels: str) -> list[Found]:
    return [Found(url, tuple(sorted(labels.items()))) for url in urls]


def grouped(found, said) -> tuple[list[tuple[str, ...]], int]:
    specs, problems = group(found, said)
    return sorted(spec.nodes for spec in specs), len(problems)


def test_a_follower_joins_the_one_node_that_lacks_its_ranks():
    """Node 0 has /v1/loads with ranks 0-15 and 0-7 on /metrics; the node with 8-15 and no /v1/loads is its second."""
    said = {"n0": sglang(range(8), range(16)), "n1": sglang(range(8, 16)), "m0": sglang(range(8), range(8))}
    assert grouped(nodes("n1", "m0", "n0"), said) == ([("m0",), ("n0", "n1")], 0)


def test_a_follower_of_either_of_two_engines_is_nobodys():
    """Two engines of two nodes each, alike in all that pages say: nothing is joined by chance, and a label is asked for."""
    said = {"a0": sglang(range(4), range(8)), "b0": sglang(range(4), range(8)), "a1": sglang(range(4, 8)), "b1": sglang(range(4, 8))}
    specs, problems = group(nodes("a0", "a1", "b0", "b1"), said)
    assert sorted(spec.nodes for spec in specs) == [("a0",), ("b0",)]
    assert len(problems) == 2
    assert "label 'engine'" in str(problems[0])


def test_a_label_joins_and_names_what_pages_do_not_tell():
    """With the label `engine` the targets are one engine of that name, node 0 first; it is no label of the outputs twice."""
    found = [Found("b", (("engine", "prod"), ("zone", "z"))), Found("a", (("engine", "prod"), ("zone", "z"), ("x", "1")))]
    (spec,), problems = group(found, {"a": sglang(range(2), range(4))})
    assert (spec.name, spec.nodes, spec.labels, problems) == ("prod", ("a", "b"), (("zone", "z"),), [])


def test_other_models_are_other_engines():
    """A follower of another model does not join, whatever its ranks."""
    said = {"n0": sglang(range(8), range(16)), "n1": sglang(range(8, 16), model="other")}
    assert grouped(nodes("n0", "n1"), said)[0] == [("n0",)]


def test_vllm_front_ends_of_all_ranks_are_one_engine():
    """Each serves its own rank of one model (external balancing): together 0..3 without a gap. With a gap they are not joined."""
    said = {f"v{k}": Told("vllm", False, frozenset({k}), model="m") for k in range(4)}
    assert grouped(nodes("v2", "v0", "v1", "v3"), said)[0] == [("v0", "v1", "v2", "v3")]
    assert grouped(nodes("v0", "v1", "v3"), said)[0] == [("v0",), ("v1",), ("v3",)]
    alone = {f"v{k}": Told("vllm", False, frozenset({0}), model="m") for k in range(2)}
    assert grouped(nodes("v0", "v1"), alone)[0] == [("v0",), ("v1",)]


@given(
    st.lists(st.sampled_from([f"n{k}" for k in range(8)]), unique=True),
    st.dictionaries(
        st.sampled_from([f"n{k}" for k in range(8)]),
        st.builds(
            Told,
            st.sampled_from(["sglang", "vllm"]),
            st.booleans(),
            st.frozensets(st.integers(0, 6), max_size=4),
            st.frozensets(st.integers(0, 6), max_size=7),
            st.sampled_from([None, "a", "b"]),
        ),
    ),
)
def test_no_target_is_lost_in_silence_or_used_twice(urls, said):
    """Whatever pages say, each target is in one engine or in a problem."""
    specs, problems = group(nodes(*urls), said)
    used = [node for spec in specs for node in spec.nodes]
    assert len(used) == len(set(used))
    assert set(used) | {problem.where for problem in problems} == set(urls)


def test_a_page_says_what_its_target_is():
    """Pages recorded from a real collector: with /v1/loads it leads and knows all ranks, without it has those of its /metrics."""
    metrics = Page("e", "n", Source.SGLANG_METRICS, 1e9, 0.1, 200, "text/plain", (CAPTURES / "tp4-dp2-ep4.prom").read_bytes())
    body = json.dumps(json.loads((CAPTURES / "v1-loads.json").read_text())["full"]["body"]).encode()
    loads = Page("e", "n", Source.SGLANG_LOADS, 1e9, 0.1, 200, "application/json", body)
    alone, leads = told(None, metrics), told(loads, metrics)
    assert alone is not None
    assert leads is not None
    assert (alone.leads, sorted(alone.ranks)) == (False, [0, 1])
    assert leads.leads
    assert leads.whole
    assert told(loads, None) is None


def test_targets_are_asked_what_they_are_over_http(serving):
    """One that answers both pages leads; one that nobody listens at has told nothing."""
    page, loads = (CAPTURES / "tp4-dp2-ep4.prom").read_bytes(), json.loads((CAPTURES / "v1-loads.json").read_text())["full"]["body"]

    def by_path(path: str) -> tuple[int, bytes, dict[str, str]]:
        return (200, json.dumps(loads).encode(), {}) if path == "/v1/loads" else (200, page, {})

    async def play() -> dict[str, Told]:
        async with serving(by_path) as server:
            found = await probe([Found(server.url), Found("http://127.0.0.1:9")])
            return {key.replace(server.url, "up"): said for key, said in found.items()}

    said = asyncio.run(play())
    assert set(said) == {"up"}
    assert said["up"].leads


def test_a_listing_waits_for_what_pages_say_and_names_doubles():
    """Until a follower has told what it is, it is listed alone, so that people see it; afterwards it belongs to its engine."""
    changed = []

    async def ask(found) -> dict[str, Told]:
        return {"http://n0:1": sglang(range(2), range(4)), "http://n1:1": sglang(range(2, 4))}

    class Fixed:
        every, looked, problems, secrets = 60.0, True, (), ()
        found = nodes("http://n0:1", "http://n1:1")

        async def look(self) -> None: ...

    async def play():
        same = EngineSpec("http://n0:1,http://n1:1", ("http://x:1",), origin="the file")
        listing = Listing([same], [Fixed()], lambda: changed.append(1), ask)
        before, _ = listing.engines()
        await asyncio.sleep(0.01)
        after, problems = listing.engines()
        await listing.close()
        return before, after, problems

    before, after, problems = asyncio.run(play())
    assert [spec.nodes for spec in before] == [("http://x:1",), ("http://n0:1",), ("http://n1:1",)]
    assert [spec.nodes for spec in after] == [("http://x:1",)]
    assert "is listed twice" in str(problems[0])
    assert changed
