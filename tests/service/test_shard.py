"""Sharded sidecars: each engine is watched by exactly one, and by the same one whatever comes and goes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.errors import ConfigError
from slowrank.config.load import load
from slowrank.discovery.listing import Listing
from slowrank.discovery.shard import Shard
from slowrank.discovery.spec import EngineSpec

NAMES = st.lists(st.text(), unique=True, max_size=50)


@given(NAMES, st.integers(1, 20))
def test_each_engine_belongs_to_exactly_one_shard(names, of):
    """Whatever engines are called."""
    shards = [Shard(number, of) for number in range(of)]
    assert all(sum(shard.has(name) for shard in shards) == 1 for name in names)


@settings(deadline=None)
@given(NAMES.filter(bool), st.integers(2, 20))
def test_adding_an_engine_moves_no_other(names, of):
    """Nor does taking one out: what a sidecar watches of the others stays as it was."""

    def kept(listed):
        specs = [EngineSpec(name, ("http://a:1",)) for name in listed]
        return [{spec.name for spec in Listing(specs, (), lambda: None, shard=Shard(n, of)).engines()[0]} for n in range(of)]

    before, after = kept(names[:-1]), kept(names)
    assert [engines - {names[-1]} for engines in after] == before
    assert set().union(*after) == set(names)


@pytest.mark.parametrize(
    ("name", "of", "number"),
    [("http://host:30000", 1000, 818), ("", 1000, 958), ("e", 1000, 778)],
)
def test_shards_are_those_of_prometheus_hashmod(name, of, number):
    """The last eight bytes of MD5, big-endian, modulo n: worked out by hand with md5sum."""
    assert Shard(number, of).has(name)


@pytest.mark.parametrize("text", ["", "1", "1/", "/2", "a/b", "-1/3", "0/0", "1/1001", "0/3/4", "0/99999", " 0/3", "0/3\n", "٠/3"])
def test_what_is_no_shard_is_refused_with_an_example(text):
    """With what was given, cut, and how it is written."""
    with pytest.raises(ConfigError, match=r"is no i/n .* the first of three is 0/3"):
        Shard.parse(text)


def test_a_number_out_of_range_names_the_last():
    """People count from 1."""
    with pytest.raises(ConfigError, match="shard '3/3': i goes from 0 to n - 1; the last of 3 is 2/3"):
        Shard.parse("3/3")


def test_the_command_line_beats_the_environment(plan, tmp_path):
    """A file that all shards share, a variable that the deployment sets, an option that a person gives."""
    file = tmp_path / "slowrank.toml"
    assert plan('[[engines]]\nnodes = ["a:1"]\n').shard == Shard(0, 1)
    assert plan('[[engines]]\nnodes = ["a:1"]\n', SLOWRANK_SERVICE__SHARD="1/4").shard == Shard(1, 4)
    loaded = load(file, {"SLOWRANK_SERVICE__SHARD": "1/4"}, shard="2/4")
    assert (loaded.config.service.shard, loaded.origins["service.shard"]) == ("2/4", "command line")
    with pytest.raises(ConfigError, match="the last of 4 is 3/4"):
        plan('[[engines]]\nnodes = ["a:1"]\n', SLOWRANK_SERVICE__SHARD="4/4")
