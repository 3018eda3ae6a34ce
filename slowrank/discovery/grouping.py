"""Which targets are one engine, by what people and pages say. Pure.

A label `engine` decides. Without it: SGLang's node 0 answers /v1/loads with all ranks of the engine while its own /metrics holds some of
them; a follower has no /v1/loads, and its /metrics holds ranks that node 0's lacks. vLLM's front ends that each serve other ranks of one
model are one engine when their ranks make up 0..n-1 without a gap. Where that fits two engines, nothing is joined and a problem says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from collector.model import Problem
from slowrank.discovery.spec import ENGINE_LABEL, EngineSpec, Found

ASK = f"give the targets of one engine the same label {ENGINE_LABEL!r}"


@dataclass(frozen=True, slots=True)
class Told:
    """What the pages of one target say. An unreachable one has told nothing and is in no mapping."""

    kind: str
    leads: bool  # SGLang: it answers /v1/loads
    ranks: frozenset[int]  # on its /metrics
    whole: frozenset[int] = frozenset()  # on its /v1/loads: all ranks of the engine
    model: str | None = None

    @property
    def lacks(self) -> frozenset[int]:
        """Ranks of the engine that other nodes must have."""
        return self.whole - self.ranks


def group(found: Sequence[Found], told: Mapping[str, Told]) -> tuple[list[EngineSpec], list[Problem]]:
    """The engines, and what could not be told. `told`: by URL."""
    once = list({one.url: one for one in found}.values())
    specs: list[EngineSpec] = []
    named: dict[str, list[Found]] = {}
    loose: list[Found] = []
    for one in once:
        named.setdefault(one.engine, []).append(one) if one.engine is not None else loose.append(one)
    specs += [_spec(_lead_first(members, told), name) for name, members in named.items()]
    problems: list[Problem] = []
    for members in _joined(loose, told, problems):
        specs.append(_spec(members, None))
    return specs, problems


def _lead_first(members: list[Found], told: Mapping[str, Told]) -> list[Found]:
    return sorted(members, key=lambda one: not (one.url in told and told[one.url].leads))  # stable: else as listed


def _joined(loose: Sequence[Found], told: Mapping[str, Told], problems: list[Problem]) -> Iterator[list[Found]]:
    heads = {one.url: [one] for one in loose if not _follows(told.get(one.url))}
    for one in loose:
        mine = told.get(one.url)
        if mine is None or not _follows(mine):
            continue
        fits = [members for members in heads.values() if _fits(members, mine, told)]
        if len(fits) == 1:
            fits[0].append(one)
            continue
        ranks = ", ".join(map(str, sorted(mine.ranks)))
        what = f"has ranks {ranks} and no /v1/loads, so it is a follower node, but of {'none' if not fits else 'any of ' + str(len(fits))}"
        problems.append(Problem(one.url, f"{what} of the engines listed", ASK))
    yield from _front_ends(list(heads.values()), told)


def _follows(said: Told | None) -> bool:
    return said is not None and said.kind == "sglang" and not said.leads and bool(said.ranks)


def _fits(members: list[Found], follower: Told, told: Mapping[str, Told]) -> bool:
    head = told.get(members[0].url)
    if (
        head is None
        or head.kind != "sglang"
        or not head.leads
        or (None not in (head.model, follower.model) and head.model != follower.model)
    ):
        return False
    taken = frozenset[int]().union(*(told[m.url].ranks for m in members[1:]))
    return follower.ranks <= head.lacks - taken


def _front_ends(engines: list[list[Found]], told: Mapping[str, Told]) -> Iterator[list[Found]]:
    """vLLM servers of one model, joined when each has its own ranks and together they have all."""
    alike: dict[tuple[object, ...], list[list[Found]]] = {}
    for members in engines:
        said = told.get(members[0].url)
        if said is not None and said.kind == "vllm" and said.ranks and said.model is not None:
            alike.setdefault((said.model, members[0].labels), []).append(members)
        else:
            yield members
    for several in alike.values():
        ranks = sorted(rank for (one,) in several for rank in told[one.url].ranks)
        if len(several) > 1 and ranks == list(range(len(ranks))):
            yield sorted((one for (one,) in several), key=lambda one: min(told[one.url].ranks))
        else:
            yield from several


def _spec(members: Sequence[Found], name: str | None) -> EngineSpec:
    nodes = tuple(one.url for one in members)
    shared = set(members[0].labels).intersection(*(one.labels for one in members[1:]))
    labels = tuple(sorted(label for label in shared if label[0] != ENGINE_LABEL))
    return EngineSpec(name or ",".join(nodes), nodes, labels, members[0].reach, origin=members[0].origin)
