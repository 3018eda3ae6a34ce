"""The parts of virtual time, each against what it stands for."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from workload.config import ClusterConfig, Experts, Limits
from workload.device import Work
from workload.device.experts import ExpertLoad, balancedness
from workload.device.roofline import Roofline
from workload.device.state import HEALTHY
from workload.scheduler import Batch, Request, Scheduler
from workload.virtual_time.block import Stretches
from workload.virtual_time.cards import Cards
from workload.virtual_time.experts import Experts as FastExperts
from workload.virtual_time.hosts import HostTimes
from workload.virtual_time.lane import Lane
from workload.virtual_time.processor import Processor
from workload.wire import Stretch, Throttle


def test_a_stopped_process_goes_on_where_it_was():
    """2 s of work, stopped 1 s after its begin for 5 s, end 7 s after it; work that begins in the stop begins at its end."""
    processor = Processor()
    processor.stop(11.0)
    assert processor.after(10.0, 2.0) == math.inf
    processor.resume(16.0)
    assert processor.after(10.0, 2.0) == 17.0
    assert processor.after(12.0, 0.5) == 16.5
    assert processor.after(16.0, 0.5) == 16.5
    processor.forget(16.0)
    assert not processor.disturbed


def test_a_starved_process_works_in_the_rest_of_each_period():
    """With 80 of every 100 ms stolen, 50 ms of work take two whole periods and half of what the third leaves."""
    processor = Processor()
    theft = processor.starve(5.0, 0.8, 0.1)
    assert processor.after(5.0, 0.050) == pytest.approx(5.29)
    assert processor.after(5.085, 0.010) == pytest.approx(5.095)
    assert processor.after(5.0, 0.020) == pytest.approx(5.1)
    assert processor.after(4.99, 0.020) == pytest.approx(5.09)
    processor.feed(theft, 5.13)
    assert processor.after(5.1, 0.010) == pytest.approx(5.14)


@pytest.mark.parametrize("seed", range(6))
def test_counted_steps_are_the_schedulers_own(seed):
    """A lane that counts steps gives the same batches, results, KV and admission ratio as a scheduler that is asked every time, whoever
    comes, ends, is aborted or retracted meanwhile."""
    rng = random.Random(seed)
    limits = Limits(kv_tokens=2000, max_running_requests=12, chunk_tokens=256)
    real, lane = Scheduler(limits), Lane(Scheduler(limits))
    flying: list[Batch] = []  # of the lane: batches whose results are open
    real_flying = None
    rows = pairs = rid = asked = retracted = 0
    for step in range(1500):
        submits: list[tuple[int, int, int]] = []
        aborts: list[int] = []
        if rng.random() < 0.06:
            rid += 1
            submits.append((rid, rng.randint(1, 300), rng.randint(1, 400)))
        if rng.random() < 0.01 and rid:
            aborts.append(rng.randint(max(1, rid - 5), rid))
        due, flying, messages = flying, [], submits or aborts
        if messages and (batch := lane.catch_up(step, flying=True)) is not None:
            due.append(batch)
        for scheduler in (real, lane.scheduler):
            for number, prompt, output in submits:
                scheduler.submit(Request(number, prompt, prompt // 2, output))
            scheduler.abort(aborts)
        expected = real.next_batch()
        tokens_pairs = (rows, pairs) if rows else None
        if messages or lane.due <= step:
            batch = lane.ask(step)
            asked += 1
            tokens_pairs = (batch.tokens, batch.pairs) if batch else None
            flying = [batch] if batch else []
            rows, pairs = lane.rows, lane.pairs
        else:
            pairs += rows
        assert tokens_pairs == ((expected.tokens, expected.pairs) if expected else None)
        result = real.complete(real_flying) if real_flying else None
        results = [lane.scheduler.complete(batch) for batch in due]
        if due and result is not None:
            assert (results[0].finished, results[0].first, results[0].generated) == (result.finished, result.first, result.generated)
        elif result is not None:
            assert not result.finished
        real_flying = expected
        assert lane.used(step) == real.kv.used
        retracted += real.take_retracted().requests
    assert asked < 1450  # so that some steps were counted
    assert retracted > 0
    lane.catch_up(1500)
    assert lane.scheduler.ratio.value == pytest.approx(real.ratio.value)
    assert [r.scheduled for r in lane.scheduler.running] == [r.scheduled for r in real.running]


@pytest.mark.parametrize("dispatch", ["normal", "low_latency"])
def test_a_step_costs_what_the_roofline_says(dispatch, monkeypatch):
    """Decodes, prefills and idle ranks, with cards well or ill: the short sum is the roofline's, for the same copies per card."""
    config = ClusterConfig(ranks=4, experts=Experts(dispatch=dispatch))
    cards, roofline, rng = Cards(config), Roofline.of(config), random.Random(1)
    monkeypatch.setattr(cards, "_noise", [1.0] * 60)
    cards.order(Stretch(1.5))
    told: list[tuple[float, float]] = []

    def listen(asked: Callable[[int], tuple[float, float]]) -> Callable[[int], tuple[float, float]]:
        def ask(tokens: int) -> tuple[float, float]:
            told.append(asked(tokens))
            return told[-1]

        return ask

    for mode in ("decode", "prefill"):
        monkeypatch.setattr(cards._experts, mode, listen(getattr(cards._experts, mode)))
    for turn in range(60):
        if turn == 40:
            cards.order(Throttle(2, 0.5, 0x40))
        extending = [r for r in range(4) if rng.random() < 0.2]
        tokens = [rng.choice([0, 9, 300]) for _ in range(4)]
        for r in extending:
            tokens[r] = 700
        pairs = [n * rng.randint(1000, 9000) for n in tokens]
        graph = not extending
        seconds, level = cards.step(tokens, sum(tokens), max(tokens), pairs, extending, graph=graph)
        works = [
            Work(prefill_tokens=n, prefill_pairs=p, graph=graph) if r in extending else Work(n, p, graph=graph)
            for r, (n, p) in enumerate(zip(tokens, pairs, strict=True))
        ]
        states = [HEALTHY] * 4
        if turn >= 40:
            states[2] = HEALTHY.after(Throttle(2, 0.5, 0x40))
        if turn >= 40 or (dispatch == "low_latency" and graph):
            copies = cards._experts.copies(sum(tokens)).tolist()
            assert level == pytest.approx(balancedness(copies))
        else:
            # while all cards are alike only the hottest counts: any rows with that maximum cost the same
            copies, expected = [[told[-1][0], 0.0, 0.0, 0.0]], told[-1][1]
            assert level == expected
        assert seconds == pytest.approx(1.5 * roofline.step(works, copies, states), rel=1e-9)


def test_the_experts_are_as_uneven_as_the_real_ones():
    """Over 4,000 steps of 80 tokens, the traffic's mix held still, the balancedness has the real draw's mean and spread."""
    config = ClusterConfig(seed=5, experts=Experts(drift=0.0))
    real, fast = ExpertLoad(8, 5, config.experts), FastExperts(config)
    levels = np.array([balancedness(real.rows(80)) for _ in range(4000)], dtype=float)
    ours = np.array([fast.decode(80)[1] for _ in range(4000)])
    assert ours.mean() == pytest.approx(levels.mean(), rel=0.005)
    assert ours.std() == pytest.approx(levels.std(), rel=0.1)


def test_the_late_rank_waits_least_in_the_sum_but_not_in_the_exchange_alone():
    """Rank 5 begins each loop 20 ms late. Its parent, rank 1, waits for it in the broadcast, all others in the exchange: only the sum of
    both waits is least on rank 5, the exchange alone points to its parent."""
    hosts = HostTimes(np.random.default_rng(1), 8, 200)
    processors = [Processor() for _ in range(8)]
    for step in range(200):
        hosts.begin[step, 5] += 0.020
        assert hosts.disturbed(step, [0.0] * 8, 0.0, processors, [0.0] * 8) is not None
    broadcast, exchange = (hosts.heard - hosts.begin).mean(axis=0), (hosts.told - hosts.asked).mean(axis=0)
    waits = broadcast + exchange
    assert np.argmin(waits) == 5
    assert np.delete(waits, 5).min() - waits[5] > 0.018
    assert np.argmin(exchange) == 1
    assert broadcast[1] > 0.018
    assert exchange[[0, 2, 3, 4, 6, 7]].min() > 0.018


def test_undisturbed_hosts_are_as_drawn():
    """Worked out rank by rank, with nothing in the way, a step is what the arrays say; it begins when host and card both let it."""
    hosts, again = (HostTimes(np.random.default_rng(2), 5, 10) for _ in range(2))
    for step in range(10):
        base = again.disturbed(step, [1.0] * 5, 2.0, [Processor() for _ in range(5)], [0.0] * 5)
        assert base == pytest.approx(2.0003)
        for name in ("begin", "heard", "asked", "told", "launched"):
            assert getattr(again, name)[step] == pytest.approx(getattr(hosts, name)[step], abs=1e-12)
    assert again.ready == pytest.approx(hosts.ready)
    stopped = [Processor() for _ in range(5)]
    stopped[3].stop(0.0)
    assert again.disturbed(0, [1.0] * 5, 2.0, stopped, [0.0] * 5) is None


def test_the_hottest_card_is_that_of_the_copies():
    """Of a prefill, which is as large as it is, exactly: the mean over the layers of the most copies, and their balancedness."""
    experts = FastExperts(ClusterConfig(seed=5))
    for step in range(120):
        rows, level = experts.prefill(500 + step)
        copies = experts.copies(500 + step).tolist()
        assert rows == pytest.approx(sum(max(layer) for layer in copies) / len(copies))
        assert level == pytest.approx(balancedness(copies))


def test_mixes_drawn_ahead_are_those_that_would_be_drawn_in_turn(monkeypatch):
    """Also when a card becomes hot amid them, whose copies are drawn from the same numbers, and when it is well again."""
    found = []
    for ahead in (1, 64):
        monkeypatch.setattr("workload.virtual_time.experts._AHEAD", ahead)
        experts = FastExperts(ClusterConfig(seed=7))
        steps = []
        for step in range(1500):
            if step in (470, 900):
                experts.concentrate(2, 0.4 if step == 470 else None)
            steps.append(experts.prefill(600) if step % 7 == 0 else experts.decode(90))
        found.append(steps)
    assert found[0] == found[1]
    # the hot card has its share of 8 copies a token, and no two other steps are alike
    assert [rows for rows, _ in found[1][470:900]] == [0.4 * 8 * (600 if step % 7 == 0 else 90) for step in range(470, 900)]
    assert len({rows for rows, _ in found[1][900:]}) == 600


@given(
    edges=st.lists(st.integers(0, 30), max_size=4).map(lambda cuts: [0, *sorted(cuts), 30]),
    codes=arrays(np.int64, (30, 3), elements=st.integers(0, 4)),
    on=arrays(bool, 30),
)
def test_stretches_are_added_up_as_their_loops_are(edges, codes, on):
    """Each stretch is the loops from one edge to the next, some of them empty; a histogram counts upwards."""
    stretches = Stretches(edges)
    for number, (low, high) in enumerate(itertools.pairwise(edges)):
        rows = range(low, high)
        assert stretches.sums(codes.T)[number].tolist() == [sum(codes[row, rank] for row in rows) for rank in range(3)]
        assert stretches.sums(codes.T, of=on)[number].tolist() == [sum(codes[row, rank] for row in rows if on[row]) for rank in range(3)]
        for rank in range(3):
            upwards = [sum(codes[row, rank] <= code for row in rows if on[row]) for code in range(5)]
            assert stretches.histogram(codes, on, 5)[number, rank].tolist() == upwards
