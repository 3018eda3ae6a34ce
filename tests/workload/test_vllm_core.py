"""Two engine cores in one process, on cards that take no time: waves, dummy batches, and what is put out without a step."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from workload.config import Limits
from workload.device import Ended, Work
from workload.exchange import Exchange
from workload.scheduling.settings import EngineFlags
from workload.scheduling.votes import GraphVotes
from workload.vllm.core import EngineCore
from workload.vllm.scheduler import VllmScheduler
from workload.vllm.wire import Output, StartWave, Woken
from workload.wire import Abort, Channel, KvReserve, PeerLostError, RankOrder, Ready, Submit

DEADLINE = 10  # seconds; a test that waits so long fails


class Card:
    """Ends every step at once and remembers what it was."""

    def __init__(self) -> None:
        self.steps: list[Work] = []

    def launch(self, step: int, work: Work) -> None:
        self.steps.append(work)

    def wait(self) -> Ended:
        return Ended(0.0, [])


class Pair:
    """Engine cores 0 and 1 in threads; `fronts[r]` and `orders[r]` are the other ends of core r's wires."""

    def __init__(self, *, moe: bool, limits: Limits) -> None:
        links = socket.socketpair()
        wires, controls = [socket.socketpair() for _ in range(2)], [socket.socketpair() for _ in range(2)]
        self.sockets = [*links, *(s for pair in (*wires, *controls) for s in pair)]
        self.fronts = [Channel(wire[0], Output | Woken) for wire in wires]
        for front in self.fronts:  # not settimeout(): with it a drain would wait as well
            front.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", DEADLINE, 0))
        self.orders = [Channel(control[0], Ready) for control in controls]
        self.cards = [Card(), Card()]
        self.cores = [
            EngineCore(
                exchange=Exchange(rank, 2, {1 - rank: links[rank]}) if moe else None,
                scheduler=VllmScheduler(limits),
                device=self.cards[rank],
                votes=GraphVotes(EngineFlags()),
                frontend=Channel(wires[rank][1], Submit | Abort | StartWave),
                control=Channel(controls[rank][1], RankOrder),
            )
            for rank in range(2)
        ]
        self.threads = [threading.Thread(target=self._run, args=(core,), daemon=True) for core in self.cores]
        for thread in self.threads:
            thread.start()

    def _run(self, core: EngineCore) -> None:
        with contextlib.suppress(PeerLostError):
            while True:
                core.iterate()

    def heard(self, rank: int) -> Output:
        """The next output of core `rank`; a wave that it begins meanwhile is begun everywhere, as the coordinator does."""
        while isinstance(message := self.fronts[rank].receive(), Woken):
            for front in self.fronts:
                front.send(StartWave(message.wave))
        assert isinstance(message, Output)
        return message

    def until(self, true: Callable[[], bool]) -> None:
        deadline = time.monotonic() + DEADLINE
        while not true():
            assert time.monotonic() < deadline
            time.sleep(0.002)


@pytest.fixture
def pair() -> Iterator[Callable[..., Pair]]:
    made: list[Pair] = []

    def make(*, moe: bool, limits: Limits = Limits()) -> Pair:  # noqa: B008  # frozen
        made.append(Pair(moe=moe, limits=limits))
        return made[0]

    yield make
    for sock in made[0].sockets:
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)
    for thread in made[0].threads:
        thread.join(DEADLINE)
        assert not thread.is_alive()
    for sock in made[0].sockets:
        sock.close()


@pytest.mark.parametrize(("tokens", "steps"), [(3, 16), (15, 16), (16, 32)])
def test_a_wave_ends_when_all_agree_every_16_steps(pair, tokens, steps):
    """A request of n tokens takes n steps and its end is known one step later: if that is after step 16, the group goes on to step 32.
    The other core launches as many, all dummies, and puts nothing out."""
    both = pair(moe=True)
    both.fronts[0].send(Submit(1, 10, 0, tokens))
    outputs = [both.heard(0) for _ in range(tokens)]
    both.until(lambda: all(core._waves == 1 for core in both.cores))
    assert [len(card.steps) for card in both.cards] == [steps, steps]
    assert [work.tokens for work in both.cards[0].steps] == [10] + [1] * (tokens - 1) + [0] * (steps - tokens)
    assert not any(work.tokens for work in both.cards[1].steps)
    assert [output.finished for output in outputs] == [[]] * (tokens - 1) + [[1]]
    assert outputs[-1].running == 0
    assert both.fronts[1].drain() == []


def test_the_next_wave_may_begin_at_the_other_core(pair):
    """Waves are numbered by all cores alike: each is begun by the core that gets a request first, and the others join it."""
    both = pair(moe=True)
    for wave, rank in enumerate((0, 1, 1)):
        both.fronts[rank].send(Submit(wave, 10, 0, 2))
        assert [both.heard(rank).finished for _ in range(2)] == [[], [wave]]
        both.until(lambda ended=wave + 1: all(core._waves == ended for core in both.cores))
    assert [len(card.steps) for card in both.cards] == [48, 48]


def test_dense_cores_step_alone_and_stand_still_without_work(pair):
    """Three steps for three tokens on one core, none on the other, and no wave."""
    both = pair(moe=False)
    both.fronts[1].send(Submit(1, 10, 0, 3))
    assert [both.heard(1).tokens for _ in range(3)] == [[1]] * 3
    assert [len(card.steps) for card in both.cards] == [0, 3]
    assert both.fronts[0].drain() == []


@pytest.mark.parametrize("moe", [True, False])
def test_an_abort_is_put_out_though_nothing_runs(pair, moe):
    """Of 200 KV tokens 100 are reserved: request 1 runs and ends, request 2 of 150 waits. When it is aborted no step is there to tell
    of it: the core says so by itself, else its page would show the request as waiting for good."""
    both = pair(moe=moe, limits=Limits(kv_tokens=200))
    both.orders[0].send(KvReserve(100))
    both.fronts[0].send(Submit(1, 50, 0, 2))
    both.fronts[0].send(Submit(2, 150, 0, 2))
    while not (last := both.heard(0)).finished:
        pass
    assert (last.running, last.waiting) == (0, 1)
    both.fronts[0].send(Abort([2]))
    last = both.heard(0)
    assert (last.tokens, last.running, last.waiting) == ([], 0, 0)
