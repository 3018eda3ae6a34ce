"""Which series were one page of one engine's node: the page's own labels and those that the scrape added, told apart. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from collector.engines import vllm_metrics
from collector.engines.limits import rank_of
from collector.engines.vllm_metrics import CONFIG
from collector.model import Problem
from collector.prometheus.answer import Series
from collector.prometheus.queries import OWN, SGLANG, VLLM

PAGE_LABELS = {
    SGLANG: frozenset(
        {"model_name", "engine_type", "dp_rank", "tp_rank", "pp_rank", "moe_ep_rank", "priority", "pid", "category", "forward_overlap"}
        | {"mode", "kind", "rank_state", "forward_mode", "is_streaming", "layer", "le"}
    ),
    VLLM: frozenset({"model_name", "engine", "stage", *(label for row in vllm_metrics.ROWS for _, label in row.names if label)}),
    OWN: frozenset({"engine", "rank", "kind", "role", "model", "version", "accelerator", "clock", "target"}),
}
"""Labels that a page itself carries (docs/signals.md); all others are the scrape's."""

REPLICAS = ("prometheus_replica", "replica", "__replica__", "receive_replica", "ha_replica")
"""Labels by which the servers of a pair that scrape the same targets are told apart."""

WAYS = ("job", "service", "endpoint", "scrape_job")
"""Labels by which two ways to scrape the same address are told apart."""

_EXPORTED = "exported_"


@dataclass(frozen=True, slots=True)
class Node:
    """What one target of a scrape showed."""

    kind: str
    target: tuple[tuple[str, str], ...]  # labels that the scrape added, by name
    series: tuple[Series, ...]  # with the page's own labels alone
    ranks: frozenset[int]
    model: str
    role: str

    @property
    def instance(self) -> str:
        """host:port of the target."""
        return dict(self.target)["instance"]

    @property
    def samples(self) -> int:
        """Samples of all series."""
        return sum(len(series.times) for series in self.series)


def nodes(found: Iterable[Series], problems: list[Problem], where: str) -> list[Node]:
    """The nodes that these series are of, each once. What was scraped twice, and series without an instance, are told in `problems`."""
    groups: dict[tuple[str, tuple[tuple[str, str], ...]], list[Series]] = defaultdict(list)
    infos: list[tuple[Series, dict[str, str]]] = []
    homeless: set[str] = set()
    for series in found:
        kind = kind_of(series.name)
        if "instance" not in series.labels:
            homeless.add(series.name)
        elif kind == VLLM and series.name.endswith(CONFIG):
            infos.append((series, dict(series.labels)))
        else:
            page, target = _apart(series.labels, PAGE_LABELS[kind])
            groups[kind, target].append(Series(series.name, page, series.times, series.values))
    if homeless:
        what = f"{len(homeless)} metrics have series without the label instance ({', '.join(sorted(homeless)[:3])}); they were not read"
        problems.append(Problem(where, what, "keep instance when series are aggregated or relabelled: it tells the engines' nodes apart"))
    for series, labels in infos:
        for (kind, target), members in groups.items():
            if kind == VLLM and all(labels.get(name) == value for name, value in target):
                names = {name for name, _ in target}
                page = {name.removeprefix(_EXPORTED): value for name, value in labels.items() if name not in names}
                members.append(Series(series.name, page, series.times, series.values))
    return _once([_node(kind, target, members) for (kind, target), members in sorted(groups.items())], problems)


def kind_of(name: str) -> str:
    """Whose metric it is, by its name."""
    return next((kind for kind in (VLLM, OWN) if name.startswith(kind)), SGLANG)


def _apart(labels: Mapping[str, str], own: frozenset[str]) -> tuple[dict[str, str], tuple[tuple[str, str], ...]]:
    """(the page's labels, the scrape's): a label of the page that the scrape has too was renamed to exported_ by the server."""
    page: dict[str, str] = {}
    target: dict[str, str] = {}
    for name, value in labels.items():
        plain = name.removeprefix(_EXPORTED)
        if plain in own and (name != plain or _EXPORTED + plain not in labels):
            page[plain] = value
        else:
            target[name] = value
    return page, tuple(sorted(target.items()))


def _node(kind: str, target: tuple[tuple[str, str], ...], series: list[Series]) -> Node:
    label = {SGLANG: "dp_rank", VLLM: "engine", OWN: "rank"}[kind]
    ranks = {rank for one in series if (rank := rank_of(one.labels.get(label, ""))) is not None}
    models = {one.labels["model_name"] for one in series if one.labels.get("model_name")}
    roles = {one.labels["engine_type"] for one in series if one.labels.get("engine_type")}
    return Node(kind, target, tuple(series), frozenset(ranks or {0}), min(models, default=""), min(roles, default=""))


def _once(found: list[Node], problems: list[Problem]) -> list[Node]:
    """Each node once: of those that differ only in who scraped them, and how, the one with most samples."""
    same: dict[tuple[str, tuple[tuple[str, str], ...]], list[Node]] = defaultdict(list)
    for node in found:
        same[node.kind, tuple(pair for pair in node.target if pair[0] not in (*REPLICAS, *WAYS))].append(node)
    kept = []
    for twins in same.values():
        best = max(twins, key=lambda node: node.samples)
        kept.append(best)
        if len(twins) > 1:
            told = sorted({name for node in twins for name, value in node.target if (name, value) not in best.target})
            what = f"scraped {len(twins)} times, told apart by {', '.join(told)}; the copy with most samples was read"
            problems.append(Problem(best.instance, what, "nothing is wrong if these are replicas of one Prometheus or two jobs"))
    return kept
