"""How well pinned prompts name a slow card: `python -m benchmarks.probe`.

First the estimator alone, on times that are drawn: 20 tries on alike cards, 20 with one rank slower. Then clusters of virtual cards that
serve meanwhile, one rank with a fifth less clock, and none: in virtual time 20 tries of each kind for several kinds of traffic, and with
`--live N` so many in real time (half a minute to two minutes each). The table: verdicts slow / level / open, wrong names, and requests
(median, most).
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
from collections.abc import Sequence

from benchmarks.probe_virtual import Probed
from collector.targets import parse_target
from diagnose import pinned
from slowrank import probing
from workload.cluster import Cluster
from workload.config import ClusterConfig
from workload.traffic.presets import PRESETS

TRIES = 20
SLOW = 1  # the rank
CLOCK = 0.2  # of it that the slow card has lost
WHOLE = 0.7  # of it that the fault takes at severity 1
UNSEEN = range(100, 100 + TRIES)  # seeds on which no limit was chosen
TRAFFIC = ("chat", "agent", "rag")


def drawn(ranks: int, slower: float, scatter: float, seed: int) -> pinned.Verdict:
    """The estimator on times that scatter by `scatter`, with load that moves whole rounds by 10 % and 2 % of prompts 1.6 times as long."""
    rng, rounds = random.Random(seed), list[list[float]]()
    while True:
        load = math.exp(rng.gauss(0, 0.1))
        times = [load * math.exp(rng.gauss(0, scatter)) * (1.6 if rng.random() < 0.02 else 1.0) for _ in range(ranks)]
        times[SLOW] *= 1 + slower
        rounds.append(times)
        verdict = pinned.judge(range(ranks), rounds)
        if verdict.outcome is not pinned.Outcome.MORE:
            return verdict


def live(ranks: int, clock: float, tokens: int, seed: int) -> pinned.Verdict:
    """A probe of a cluster that serves, `clock` lost on one card."""
    with Cluster(ClusterConfig(ranks=ranks, seed=seed)) as cluster:
        if clock:
            cluster.inject("gpu_throttled", rank=SLOW, severity=clock / WHOLE)
        with probing.connect(parse_target(cluster.url)) as client:
            engine = probing.Engine(client, cluster.url, random.Random(seed))
            return probing.run(engine, tokens, lambda _probe: None)[0]


def virtual(ranks: int, clock: float, tokens: int, traffic: str, seed: int) -> pinned.Verdict:
    """A probe of a cluster that serves, in virtual time, `clock` lost on one card."""
    config = ClusterConfig(ranks=ranks, seed=seed, traffic=PRESETS[traffic])
    return Probed(config, SLOW, clock / WHOLE).probe(tokens)[0]


def row(what: str, ranks: int, verdicts: Sequence[pinned.Verdict], truth: tuple[int, ...]) -> str:
    count = {outcome: sum(v.outcome is outcome for v in verdicts) for outcome in pinned.Outcome}
    wrong = sum(v.outcome is pinned.Outcome.SLOW and v.ranks != truth for v in verdicts)
    asked = [v.rounds * ranks for v in verdicts]
    found = f"{count[pinned.Outcome.SLOW]:>3} / {count[pinned.Outcome.LEVEL]:>3} / {count[pinned.Outcome.OPEN]:>3}"
    return f"{what:<42} {ranks:>5}  {found}  {wrong:>5}  {statistics.median(asked):>5.0f}, {max(asked)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--live", type=int, default=0, help="tries of each kind on clusters in real time")
    parser.add_argument("--ranks", type=int, default=4, help="of those clusters")
    parser.add_argument("--tokens", type=int, default=8192)
    given = parser.parse_args()
    print(f"{'':<42} {'ranks':>5}  slow/level/open  wrong  requests")
    for ranks in (2, 4, 8):
        for slower in (0.0, 0.08):
            for scatter in (0.015, 0.03):
                verdicts = [drawn(ranks, slower, scatter, seed) for seed in range(TRIES)]
                print(row(f"drawn: {slower:.0%} slower, scatter {scatter:.1%}", ranks, verdicts, (SLOW,) if slower else ()), flush=True)
    for traffic in TRAFFIC:
        for clock in (0.0, CLOCK):
            found = [virtual(given.ranks, clock, given.tokens, traffic, seed) for seed in UNSEEN]
            print(row(f"virtual time, {traffic}: {clock:.0%} of clock lost", given.ranks, found, (SLOW,) if clock else ()), flush=True)
    kinds: tuple[tuple[str, float], ...] = (("live: alike cards", 0.0), (f"live: one card without {CLOCK:.0%} of clock", CLOCK))
    for what, clock in kinds if given.live else ():
        verdicts = [live(given.ranks, clock, given.tokens, seed) for seed in range(given.live)]
        print(row(what, given.ranks, verdicts, (SLOW,) if clock else ()), flush=True)
        for v in verdicts:
            print("   ", ", ".join(f"rank {s.rank} {s.slower:+.1%}" for s in v.standings))


if __name__ == "__main__":
    main()
