"""The configured router gets what the ranks publish, in its own terms."""

from __future__ import annotations

import pytest

from workload.config import Budget, ClusterConfig
from workload.face.loads import LoadSnapshot
from workload.steering import steering


class Ranks:
    """Snapshots that a test edits."""

    def __init__(self, number: int) -> None:
        self.snapshots = [LoadSnapshot(dp_rank=rank) for rank in range(number)]

    def publish(self, rank: int, *, at: float, running: int = 0, waiting: int = 0, tokens: int = 0, usage: float = 0.0) -> None:
        self.snapshots[rank] = LoadSnapshot(
            dp_rank=rank,
            timestamp=at,
            num_running_reqs=running,
            num_waiting_reqs=waiting,
            num_total_tokens=tokens,
            token_usage=usage,
        )

    def read(self) -> list[LoadSnapshot]:
        return self.snapshots


def test_total_requests_counts_running_and_waiting():
    """Two that run and one that waits are three: the peer with two gets the request, then both are even and the lower one does."""
    ranks = Ranks(2)
    ranks.publish(0, at=1.0, running=2, waiting=1)
    ranks.publish(1, at=1.0, running=2)
    steer = steering(ClusterConfig(ranks=2, method="total_requests"), ranks.read)
    assert [steer.choose(5.0, 10, None), steer.choose(5.001, 10, None)] == [1, 0]


@pytest.mark.parametrize(("budget", "expected"), [(Budget(), 0), (Budget(refresh_seconds=0.0), 1)])
def test_the_throttle_is_configurable(budget, expected):
    """A snapshot 10 ms after the last read is not seen yet; with the throttle off it is taken over at once."""
    ranks = Ranks(2)
    steer = steering(ClusterConfig(ranks=2, method="total_tokens", budget=budget), ranks.read)
    ranks.publish(1, at=1.0, tokens=50)
    assert steer.choose(5.0, 10, None) == 0
    ranks.publish(0, at=2.0, tokens=100)
    assert steer.choose(5.010, 10, None) == expected
    assert steer.choose(5.030, 10, None) == 1


def test_a_pinned_request_reads_nothing():
    """It neither refreshes nor counts."""

    def never() -> list[LoadSnapshot]:
        raise AssertionError("the snapshots were read")

    assert steering(ClusterConfig(ranks=2, method="total_tokens"), never).choose(5.0, 10, pinned=1) == 1


def test_bootstrap_rooms_are_random_and_repeatable():
    """Rooms come from the seed; over many requests all ranks are met, whatever they have to do."""
    ranks = Ranks(4)
    ranks.publish(0, at=1.0, running=500, tokens=900_000)

    def dealt() -> list[int]:
        steer = steering(ClusterConfig(ranks=4, method="follow_bootstrap_room", seed=3), ranks.read)
        return [steer.choose(5.0, 10, None) for _ in range(400)]

    chosen = dealt()
    assert chosen == dealt()
    assert all(chosen.count(rank) == pytest.approx(100, abs=40) for rank in range(4))


def test_vllms_score_steers_by_snapshots_of_all_ranks():
    """Waiting, running and KV usage reach the score through the coordinator: 50 ms after they changed at the earliest."""
    ranks = Ranks(2)
    steer = steering(ClusterConfig(ranks=2, method="vllm_score"), ranks.read)
    assert steer.choose(5.0, 10, None) == 0
    steer.ended(0)
    ranks.publish(1, at=1.0, running=1)
    ranks.publish(0, at=1.0, waiting=2, usage=1.0)  # 2 + 2 x 6 x 0.5 = 8
    assert steer.choose(5.01, 10, None) == 1  # not yet told: 0 has its bump of 1, 1 has nothing
    assert steer.choose(5.11, 10, None) == 1  # told: 8 against 1, and 2 from then on
    assert [steer.choose(5.12, 10, None) for _ in range(8)] == [1] * 7 + [0]  # the tie at 8 falls to 1, whose turn it is
