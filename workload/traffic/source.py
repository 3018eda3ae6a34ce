"""Requests as seeded random draws. Pure: who sends them, and when, is the front end's business."""

from __future__ import annotations

import bisect
import itertools
import math
import random
from collections.abc import Iterator

import msgspec

from workload.prefix import Segment
from workload.traffic.model import Conversations, Documents, Lengths, Traffic


class Shape(msgspec.Struct, frozen=True):
    """Tokens of prompt, how many of them are cached, tokens of answer.

    With a `prefix` the prompt begins with it, and the rank that serves it knows what of that is cached. `keeps` names what
    follows the prefix, answer included, for the next turn to begin with.
    """

    prompt: int
    cached: int
    output: int
    prefix: tuple[Segment, ...] = ()
    keeps: str = ""


def draw(lengths: Lengths, rng: random.Random) -> int:
    """One length, in tokens."""
    drawn = round(lengths.median * math.exp(lengths.sigma * rng.gauss()))
    return lengths.low if drawn < lengths.low else min(drawn, lengths.high)


def shape(prompt: Lengths, fresh: Lengths | None, output: Lengths, rng: random.Random) -> Shape:
    """One request that shares no named beginning. Without `fresh` nothing of the prompt is cached."""
    length = draw(prompt, rng)
    new = length if fresh is None else min(draw(fresh, rng), length)
    return Shape(prompt=length, cached=length - new, output=draw(output, rng))


class Source:
    """The stream of one cluster's requests, the same for the same seed."""

    def __init__(self, traffic: Traffic, seed: int) -> None:
        self._traffic = traffic
        self._seed = seed
        self._rng = random.Random(seed)
        self._names = itertools.count()
        self._popularity: list[float] = []  # of documents, cumulated
        if isinstance(traffic.sharing, Documents):
            self._popularity = list(itertools.accumulate(k**-traffic.sharing.zipf for k in range(1, traffic.sharing.count + 1)))

    def request(self) -> Shape:
        """A request that does not depend on an earlier one's answer: of a conversation, the first."""
        return next(self.conversation())

    def conversation(self) -> Iterator[Shape]:
        """One user's requests that belong together, each after the answer to the last: more than one only with `Conversations`."""
        traffic = self._traffic
        match traffic.sharing:
            case None:
                yield shape(traffic.prompt, traffic.fresh, traffic.output, self._rng)
            case Documents() as documents:
                yield self._question(documents)
            case Conversations() as sharing:
                yield from self._turns(sharing)

    def stream(self) -> Iterator[Shape]:
        """One user's requests, conversation after conversation, without end."""
        while True:
            yield from self.conversation()

    def pause(self, mean: float) -> float:
        """Seconds until the next request of a memoryless source with this mean."""
        return self._rng.expovariate(1 / mean) if mean > 0 else 0.0

    def residue(self, shape: Shape) -> Shape:
        """The rest of a request that has been running for a while: so a cluster starts with its crowd in mid-conversation."""
        return msgspec.structs.replace(shape, output=max(1, round(shape.output * self._rng.random())))

    def chance(self, probability: float) -> bool:
        return self._rng.random() < probability

    def _question(self, documents: Documents) -> Shape:
        assert self._traffic.fresh is not None
        which = min(bisect.bisect(self._popularity, self._rng.random() * self._popularity[-1]), documents.count - 1)
        # a document's length is its own, not the request's: drawn from a stream that only its number seeds
        length = draw(self._traffic.prompt, random.Random(f"{self._seed}/document/{which}"))
        prefix = (Segment("system", documents.system), Segment(f"document{which}", length))
        question = draw(self._traffic.fresh, self._rng)
        return Shape(documents.system + length + question, 0, draw(self._traffic.output, self._rng), prefix)

    def _turns(self, sharing: Conversations) -> Iterator[Shape]:
        assert self._traffic.fresh is not None
        name = f"conversation{next(self._names)}"
        prefix: tuple[Segment, ...] = (Segment(f"system{self._rng.randrange(sharing.systems)}", sharing.system),)
        lengths = self._traffic.prompt
        for turn in itertools.count():
            message, output = draw(lengths, self._rng), draw(self._traffic.output, self._rng)
            context = sum(segment.tokens for segment in prefix) + message
            if turn and context + output > sharing.context:
                return
            kept = f"{name}.{turn}"
            yield Shape(context, 0, output, prefix, kept)
            prefix = (*prefix, Segment(kept, message + output))
            lengths = self._traffic.fresh
            if not self.chance(1 - 1 / sharing.turns):
                return
