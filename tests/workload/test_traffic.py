"""Traffic is seeded, and as long as it says."""

from __future__ import annotations

import itertools
import math
import random
import statistics
from collections import Counter

import pytest

from workload.config import CHAT, ClusterConfig, Lengths
from workload.prefix import Segment
from workload.traffic import Shape, Source, draw, shape
from workload.traffic.model import ClosedLoop, Conversations, Documents, Traffic
from workload.traffic.presets import AGENT, LONG_CONTEXT, PRESETS, RAG, preset


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


def test_the_default_traffic_draws_in_its_own_order():
    """Prompt, new part, answer, each one Gaussian of the one seeded stream: recorded runs of the default stay comparable."""
    rng, stream = random.Random(7), Source(CHAT, 7).stream()

    def length(median: float, sigma: float, low: int, high: int) -> int:
        return min(max(round(median * math.exp(sigma * rng.gauss(0, 1))), low), high)

    for _ in range(200):
        prompt, fresh, output = length(5000, 0.5, 512, 32_768), length(100, 0.7, 8, 400), length(200, 0.6, 16, 1500)
        assert next(stream) == Shape(prompt, prompt - fresh, output)
    assert ClusterConfig().traffic is CHAT is preset("chat")


def exactly(tokens: int) -> Lengths:
    return Lengths(tokens, 0, tokens, tokens)


TALK = Traffic(
    arrivals=ClosedLoop(),
    prompt=exactly(50),
    fresh=exactly(20),
    output=exactly(30),
    sharing=Conversations(system=500, systems=3, turns=1e9, context=720, pause=1.0),
)


def test_a_turn_begins_with_all_that_was_said_before():
    """System prompt, then each message with its answer; it ends where the next answer would pass the longest context."""
    turns = list(Source(TALK, 1).conversation())
    assert [(t.prompt, t.cached, t.output) for t in turns] == [(550, 0, 30), (600, 0, 30), (650, 0, 30)]  # 650 + 30 + 20 + 30 > 720
    for turn, following in itertools.pairwise(turns):
        said = Segment(turn.keeps, turn.prompt + turn.output - sum(s.tokens for s in turn.prefix))
        assert following.prefix == (*turn.prefix, said)
    assert [s.tokens for s in turns[2].prefix] == [500, 80, 50]


def test_conversations_share_system_prompts_and_nothing_else():
    """Three system prompts serve all; no two conversations have another segment in common."""
    stream = Source(TALK, 1).stream()
    turns = [next(stream) for _ in range(300)]
    assert {t.prefix[0].name for t in turns} == {"system0", "system1", "system2"}
    assert len({t.keeps for t in turns}) == 300


def test_conversations_have_their_mean_number_of_turns():
    """Geometric: 5 in the mean where no context limit cuts them."""
    talk = Traffic(TALK.arrivals, TALK.prompt, TALK.fresh, TALK.output, Conversations(0, 1, 5.0, 10**9, 0.0))
    source = Source(talk, 3)
    assert statistics.mean(len(list(source.conversation())) for _ in range(3000)) == pytest.approx(5.0, rel=0.06)


def test_a_document_is_always_the_same_text():
    """Its length belongs to its name, for every request and every order of requests; the question after it is new."""
    source = Source(RAG, 4)
    lengths: dict[str, int] = {}
    for _ in range(2000):
        request = source.request()
        system, document = request.prefix
        assert system == Segment("system", 500)
        assert lengths.setdefault(document.name, document.tokens) == document.tokens
        assert 500 + document.tokens < request.prompt
        assert request.keeps == ""
    assert len(set(lengths.values())) > 100


def test_few_documents_draw_most_questions():
    """The preset's source: 3 % of the documents, 60 % of the requests."""
    assert isinstance(RAG.sharing, Documents)
    assert RAG.sharing.count == 1000
    source = Source(RAG, 5)
    asked = Counter(source.request().prefix[1].name for _ in range(20_000))
    assert sum(n for _, n in asked.most_common(30)) / 20_000 == pytest.approx(0.60, abs=0.02)
    assert asked.most_common(1)[0][0] == "document0"


def test_an_agent_reaches_some_80_thousand_tokens_in_30_steps():
    """The preset's source; each step adds a tool's result and the answer before it."""
    source = Source(AGENT, 6)
    contexts: list[int] = []
    while len(contexts) < 100:
        turns = list(source.conversation())
        if len(turns) >= 30:
            contexts.append(turns[29].prompt)
    assert 60_000 < statistics.mean(contexts) < 100_000


def test_long_contexts_are_new_for_the_greater_part():
    """The preset's source: 63 % of the prompts' tokens are in no cache."""
    source = Source(LONG_CONTEXT, 7)
    requests = [source.request() for _ in range(20_000)]
    new = 1 - sum(r.cached for r in requests) / sum(r.prompt for r in requests)
    assert new == pytest.approx(0.63, abs=0.02)


@pytest.mark.parametrize("name", ["chat", "agent", "rag", "long_context", "bursty", "diurnal"])
def test_every_preset_can_be_served(name):
    """Its requests are well formed and fit a rank of the default size."""
    stream = Source(preset(name), 8).stream()
    for request in itertools.islice(stream, 2000):
        assert request.output >= 1
        assert 0 <= request.cached < request.prompt or request.prompt == request.cached + 1
        assert sum(s.tokens for s in request.prefix) < request.prompt
        assert request.prompt + request.output <= ClusterConfig().limits.kv_tokens
    assert len(PRESETS) == 6


def test_an_unknown_preset_names_the_nearest():
    """Or all there are."""
    with pytest.raises(ValueError, match=r"no traffic 'long-context'; did you mean long_context\?"):
        preset("long-context")
    with pytest.raises(ValueError, match="there are chat, agent, rag, long_context, bursty, diurnal"):
        preset("zzz")


def test_shared_beginnings_need_a_new_part():
    """Without it no question could follow the document."""
    with pytest.raises(ValueError, match="needs `fresh`"):
        Traffic(TALK.arrivals, TALK.prompt, None, TALK.output, TALK.sharing)
