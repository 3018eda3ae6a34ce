"""Traffic is seeded, and as long as it says."""

from __future__ import annotations

import random
import statistics

import pytest

from workload.config import CHAT, Lengths
from workload.traffic import Source, draw, shape


def test_the_same_seed_gives_the_same_requests():
    """A run can be repeated; another seed is another run."""
    one, same, other = Source(CHAT, 5), Source(CHAT, 5), Source(CHAT, 6)
    requests = [one.request() for _ in range(50)]
    assert requests == [same.request() for _ in range(50)]
    assert requests != [other.request() for _ in range(50)]


def test_lengths_have_their_median_and_stay_within_their_limits():
    """Lognormal about the median, cut at both ends."""
    rng = random.Random(1)
    drawn = [draw(Lengths(1000, 0.5, 500, 2000), rng) for _ in range(4000)]
    assert statistics.median(drawn) == pytest.approx(1000, rel=0.05)
    assert (min(drawn), max(drawn)) == (500, 2000)


def test_only_the_fresh_part_of_a_prompt_is_uncached():
    """A conversation's history is in the cache; without `fresh` nothing is."""
    rng = random.Random(1)
    lengths, new = Lengths(5000, 0, 1, 9999), Lengths(100, 0, 1, 400)
    assert shape(lengths, new, new, rng).cached == 4900
    assert shape(lengths, None, new, rng).cached == 0
    assert shape(new, lengths, new, rng).cached == 0  # never more fresh tokens than the prompt has


def test_pauses_are_memoryless_with_their_mean():
    """Exponential: as much spread as mean."""
    source = Source(CHAT, 3)
    pauses = [source.pause(2.0) for _ in range(5000)]
    assert statistics.mean(pauses) == pytest.approx(2.0, rel=0.06)
    assert statistics.stdev(pauses) == pytest.approx(2.0, rel=0.1)


def test_a_request_under_way_has_part_of_its_answer_left():
    """A crowd caught in mid-conversation owes between one token and the whole answer."""
    source = Source(CHAT, 3)
    whole = [source.request() for _ in range(500)]
    rest = [source.residue(request) for request in whole]
    assert all(1 <= r.output <= w.output and r.prompt == w.prompt for r, w in zip(rest, whole, strict=True))
    assert sum(r.output for r in rest) / sum(w.output for w in whole) == pytest.approx(0.5, abs=0.07)
