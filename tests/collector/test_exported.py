"""The names of our own series: Prometheus' conventions, one meaning each."""

from __future__ import annotations

import re

import pytest

from collector import exported, signals


def test_a_unit_is_written_in_base_units_and_once():
    """Seconds are spelled out, a name that ends in its unit does not repeat it, a plain count has none, a counter ends in _total."""
    names = {signal: family.name for signal, family in exported.of_signals().items()}
    assert names[signals.SYNC_WAIT] == "slowrank_sync_wait_seconds_total"
    assert names[signals.ATTENTION_PAIRS] == "slowrank_attention_pairs_total"
    assert names[signals.RESIDENT_TOKENS] == "slowrank_resident_tokens"
    assert names[signals.SNAPSHOT_AGE] == "slowrank_snapshot_age_seconds"
    assert names[signals.KV_USAGE] == "slowrank_kv_usage_ratio"
    assert names[signals.STEPS_ACTIVE] == "slowrank_steps_active_total"


def test_a_signal_of_the_engine_has_no_rank_label():
    """Expert balancedness is one value per engine; attention work is one per rank."""
    assert exported.of_signals()[signals.BALANCEDNESS_SUM].labels == ("engine",)
    assert exported.of_signals()[signals.ATTENTION_PAIRS].labels == ("engine", "rank")


@pytest.mark.parametrize("family", [*exported.of_signals().values(), *exported.FAMILIES.values()], ids=lambda f: f.name)
def test_every_family_keeps_prometheus_conventions(family):
    """A legal name, _total exactly on counters, help without a full stop, legal labels."""
    assert re.fullmatch(r"slowrank_[a-z0-9_]+", family.name)
    assert family.name.endswith("_total") is (family.kind is exported.Kind.COUNTER)
    assert family.help
    assert not family.help.endswith(".")
    assert all(re.fullmatch(r"[a-z_]+", label) for label in family.labels)


def test_histograms_alone_have_bounds():
    """They rise; the parts of the family are three series, every other family is one under its own name."""
    for family in exported.FAMILIES.values():
        histogram = family.kind is exported.Kind.HISTOGRAM
        assert bool(family.bounds) is histogram
        assert list(family.bounds) == sorted(set(family.bounds))
        assert family.series == (tuple(family.name + end for end in ("_bucket", "_sum", "_count")) if histogram else (family.name,))


def test_names_are_unique():
    """A derived series never takes the name of a signal."""
    names = [name for f in (*exported.of_signals().values(), *exported.FAMILIES.values()) for name in f.series]
    assert len(names) == len(set(names))
