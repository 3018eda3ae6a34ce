"""One picture per scenario, as an SVG of our own: what it does to step time, waits, attention pairs and requests.

`python -m workload.plot DIR` draws all bundled scenarios with a fault; `slowrank workload plot NAME -o DIR` draws one.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from functools import partial
from html import escape
from pathlib import Path

from workload.scenario import Scenario, bundled, load
from workload.schedule import Scheduled, find
from workload.trace import Point, live, simulated

_WIDTH, _LEFT, _RIGHT = 820, 66, 14
_BARS, _BAR = 76, 17  # where the bars of the faults begin, and what one takes
_PANEL, _GAP = 112, 34
_BACK, _INK, _FAINT, _GRID, _SHADE = "#ffffff", "#1b1b1b", "#5d6570", "#e3e6ea", "#fbe9c6"
_PEER = "#9aa4b0"
# Okabe and Ito's colours, which people with any colour vision tell apart on white; each also has a dash pattern of its own
_ILL = (("#d55e00", ""), ("#0072b2", "7 3"), ("#009e73", "2 3"), ("#aa4499", "9 3 2 3"))

# No axis is shorter: a millisecond of scatter between processes is not to look like an event
_LEAST = {"ms": 10.0, "requests": 5.0}

Curve = list[tuple[float, float | None]]


def draw(scenario: Scenario, directory: Path, *, in_real_time: bool = False) -> Path:
    """Runs the scenario and writes NAME.svg. Raises ValueError for a vLLM cluster, and where virtual time
    does not play it and `in_real_time` is not set.
    """
    if scenario.config.vllm is not None:
        raise ValueError(
            f"{scenario.name}: a vLLM cluster's pages show no waits and no pairs, so there is no picture; run it and read /metrics"
        )
    found = live(scenario) if in_real_time else simulated(scenario)
    path = directory / f"{scenario.name}.svg"
    directory.mkdir(parents=True, exist_ok=True)
    path.write_text(picture(scenario, found, "a real cluster" if in_real_time else "virtual time"), encoding="utf-8")
    return path


def picture(scenario: Scenario, found: Sequence[Point], made_by: str) -> str:
    """The SVG text of a run."""
    ranks = scenario.config.ranks
    ill = _ill(scenario)
    panels = [
        ("step time of the group", "ms", [(_INK, "", _curve(found, lambda p: p.step and p.step * 1e3))]),
        ("wait of each rank per step", "ms", _per_rank(ranks, ill, found, lambda p, r: p.waits[r] * 1e3 if p.waits else None)),
        (
            "attention pairs of each rank per step",
            "thousand KV tokens",
            _per_rank(ranks, ill, found, lambda p, r: p.pairs[r] / 1e3 if p.pairs else None),
        ),
        ("requests of each rank, as it publishes them", "requests", _per_rank(ranks, ill, found, lambda p, r: p.requests[r])),
    ]
    top = _BARS + _BAR * len(scenario.schedule) + 26
    height = top + len(panels) * (_PANEL + _GAP) + 14
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}"',
        f'role="img" font-family="system-ui, sans-serif" font-size="12" fill="{_INK}">',
        f"<title>{escape(scenario.name)}</title><desc>{escape(scenario.about)}</desc>",
        f'<rect width="{_WIDTH}" height="{height}" fill="{_BACK}"/>',
        f'<text x="{_LEFT}" y="24" font-size="16" font-weight="600">{escape(scenario.name)}</text>',
        f'<text x="{_LEFT}" y="43" fill="{_FAINT}">{escape(scenario.about)} {ranks} ranks, seed {scenario.config.seed}, {made_by}.</text>',
        *_legend(ranks, ill),
        *(part for row, s in enumerate(scenario.schedule) for part in _bar(s, scenario, row)),
    ]
    for i, (title, unit, curves) in enumerate(panels):
        parts += _panel(top + i * (_PANEL + _GAP), title, unit, curves, scenario, last=i == len(panels) - 1)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _ill(scenario: Scenario) -> list[int]:
    """The ranks that a fault acts on, in order of the schedule."""
    ranks = [r for s in scenario.schedule if s.rank is not None for r in find(s.fault).ranks(s.rank, scenario.config.ranks)]
    whole = {s.fault for s in scenario.schedule if find(s.fault).whole_group}
    return [] if whole and not ranks else list(dict.fromkeys(ranks))


def _per_rank(
    ranks: int, ill: list[int], found: Sequence[Point], value: Callable[[Point, int], float | None]
) -> list[tuple[str, str, Curve]]:
    """Peers first, so that the ill ones lie on top."""
    order = [r for r in range(ranks) if r not in ill] + ill
    return [(*_style(r, ill), [(p.at, value(p, r)) for p in found]) for r in order]


def _curve(found: Sequence[Point], value: Callable[[Point], float | None]) -> Curve:
    return [(p.at, value(p)) for p in found]


def _style(rank: int, ill: list[int]) -> tuple[str, str]:
    return _ILL[ill.index(rank) % len(_ILL)] if rank in ill else (_PEER, "")


def _legend(ranks: int, ill: list[int]) -> list[str]:
    entries = [(*_style(r, ill), f"rank {r}", 2.2) for r in ill]
    entries.append((_PEER, "", "the other ranks" if ill else f"ranks 0 to {ranks - 1}", 1.2))
    parts, x = [], _LEFT
    for colour, dash, text, width in entries:
        parts.append(f'<line x1="{x}" x2="{x + 22}" y1="58" y2="58" stroke="{colour}" stroke-width="{width}"{_dash(dash)}/>')
        parts.append(f'<text x="{x + 27}" y="62">{text}</text>')
        x += 44 + 7 * len(text)
    return parts


def _panel(top: int, title: str, unit: str, curves: list[tuple[str, str, Curve]], scenario: Scenario, *, last: bool) -> list[str]:
    right, bottom = _WIDTH - _RIGHT, top + _PANEL
    x = partial(_x, scenario=scenario)
    most = max((y for _, _, curve in curves for _, y in curve if y is not None), default=0.0)
    most = max(most, _LEAST.get(unit, 1.0))
    ticks = _ticks(most)
    high = ticks[-1]

    def y(value: float) -> float:
        return round(bottom - _PANEL * value / high, 1)

    parts = [_shade(x(s.onset), x(min(s.onset + s.duration, scenario.duration)), top) for s in scenario.schedule]
    for tick in ticks:
        parts.append(f'<line x1="{_LEFT}" x2="{right}" y1="{y(tick)}" y2="{y(tick)}" stroke="{_GRID}"/>')
        parts.append(f'<text x="{_LEFT - 7}" y="{y(tick) + 4}" text-anchor="end" fill="{_FAINT}">{tick:,.6g}</text>')
    parts.append(f'<text x="{_LEFT}" y="{top - 7}"><tspan font-weight="600">{title}</tspan>, {unit}</text>')
    for at in range(0, int(scenario.duration) + 1, 10 * max(1, round(scenario.duration / 100))):
        parts.append(f'<line x1="{x(at)}" x2="{x(at)}" y1="{bottom}" y2="{bottom + 4}" stroke="{_FAINT}"/>')
        if last:
            parts.append(f'<text x="{x(at)}" y="{bottom + 17}" text-anchor="middle" fill="{_FAINT}">{at} s</text>')
    for colour, dash, curve in curves:
        width = 1.2 if colour == _PEER else 2.2
        parts += [
            f'<polyline fill="none" stroke="{colour}" stroke-width="{width}" stroke-linejoin="round"{_dash(dash)} '
            f'points="{" ".join(f"{x(at)},{y(value)}" for at, value in run)}"/>'
            for run in _unbroken(curve)
        ]
    return parts


def _shade(begin: float, end: float, top: int) -> str:
    width = round(end - begin, 1)
    return f'<rect x="{begin}" y="{top}" width="{width}" height="{_PANEL}" fill="{_SHADE}" fill-opacity=".75"/>'


def _bar(s: Scheduled, scenario: Scenario, row: int) -> list[str]:
    """When a fault acts, and where."""
    begin, end = _x(s.onset, scenario), _x(min(s.onset + s.duration, scenario.duration), scenario)
    y = _BARS + _BAR * row
    fault = find(s.fault)
    ranks = () if s.rank is None or fault.whole_group else fault.ranks(s.rank, scenario.config.ranks)
    where = "" if not ranks else f", rank {ranks[0]}" if len(ranks) == 1 else f", ranks {', '.join(map(str, ranks))}"
    return [
        f'<rect x="{begin}" y="{y}" width="{round(end - begin, 1)}" height="{_BAR - 3}" fill="{_SHADE}"/>',
        f'<text x="{begin + 5}" y="{y + 11}" font-size="11">{s.fault}{where}</text>',
    ]


def _x(at: float, scenario: Scenario) -> float:
    return round(_LEFT + (_WIDTH - _RIGHT - _LEFT) * at / scenario.duration, 1)


def _unbroken(curve: Curve) -> list[list[tuple[float, float]]]:
    """The stretches of a curve without a gap."""
    runs: list[list[tuple[float, float]]] = [[]]
    for at, value in curve:
        if value is None:
            runs.append([])
        else:
            runs[-1].append((at, value))
    return [run for run in runs if run]


def _ticks(most: float) -> list[float]:
    """Round values from 0 to at least `most`: three to six of them."""
    size = 10.0 ** math.floor(math.log10(most))
    step = next(size * f for f in (0.2, 0.5, 1.0, 2.0, 5.0) if most / (size * f) <= 5)
    return [step * i for i in range(math.ceil(most / step) + 1)]


def _dash(pattern: str) -> str:
    return f' stroke-dasharray="{pattern}"' if pattern else ""


def main() -> None:
    directory = Path(sys.argv[1] if len(sys.argv) > 1 else "docs/workload")
    for name in bundled():
        scenario = load(name)
        if scenario.schedule and scenario.config.vllm is None:
            engine = scenario.config.engine
            draw(scenario, directory, in_real_time=engine.split is not None or engine.speculation is not None)


if __name__ == "__main__":
    main()
