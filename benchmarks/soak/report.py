"""The figures of a soak, printed. Pure reading of what was written down."""

from __future__ import annotations

import re
import statistics
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from benchmarks.served import value, values
from benchmarks.soak.play import EVERY, Acted
from benchmarks.soak.sidecar import Told

STARTING = 120.0
"""s that are left out of the medians of the first fifth: imports and the first windows fill memory."""

AFTER = 90.0
"""s after its end in which a fault may still be found: three windows, of which the first is half full of it."""


def resources(looks: Sequence[dict[str, float]], ranks: int) -> None:
    """Memory, threads, descriptors, tasks, CPU."""
    print(f"{len(looks)} looks at {ranks} ranks")
    warm = [look for look in looks if look["at"] - looks[0]["at"] >= STARTING] or looks
    fifth = max(1, len(warm) // 5)
    for name in ("rss", "threads", "fds", "tasks", "series", "page_ms", "load"):
        values = [look[name] for look in warm]
        first, last = statistics.median(values[:fifth]), statistics.median(values[-fifth:])
        print(f"{name:<8} first fifth {first:8.1f}   last fifth {last:8.1f}   most {max(look[name] for look in looks):8.1f}")
    print("rss by minute:", " ".join(f"{look['rss']:.0f}" for look in looks[:: round(60 / EVERY)]))
    for name, of in (("cpu", "sidecar"), ("engine_cpu", "workload")):
        print(f"CPU of the {of}: {(warm[-1][name] - warm[0][name]) / max(warm[-1]['at'] - warm[0]['at'], 1e-9):.1%} of a core")


def reading(page: str) -> None:
    """Cadence and cost, from the sidecar's own page."""
    for source in ("loads", "metrics", "dcgm"):
        buckets = _buckets(page, source)
        if not buckets:
            continue
        count = buckets[-1][1]
        names = ("late_seconds_sum", "seconds_total", "bytes_total")
        late, spent, size = (sum(values(page, f"slowrank_scrape_{name}", f'source="{source}"')) for name in names)
        within = next(n for bound, n in buckets if bound == 0.1) / count
        print(
            f"{source:<8} {count:.0f} pages of {size / count / 1e3:.0f} kB, {spent / count * 1e3:.0f} ms long in the mean;"
            f" {within:.2%} began within 100 ms of when they were due, {late / count * 1e3:.1f} ms late in the mean,"
            f" p50 <= {_quantile(buckets, 0.5):g} s, p99 <= {_quantile(buckets, 0.99):g} s, all <= {_quantile(buckets, 1.0):g} s"
        )
        print(
            f"{'':<8} outcomes:",
            dict(re.findall(rf'^slowrank_scrapes_total\{{[^\n]*outcome="(\w+)",source="{source}"\}} (\S+)$', page, re.MULTILINE)),
        )
    cpu, made = value(page, "slowrank_diagnosis_seconds_total"), value(page, "slowrank_diagnoses_total")
    print(f"diagnosis {made:.0f} verdicts, {cpu / max(made, 1) * 1e3:.1f} ms of CPU each")


def faults(acted: Sequence[Acted], incidents: Sequence[dict[str, Any]], told: Sequence[Told]) -> None:
    """For each fault the incidents that were there because of it; then those that nothing explains."""
    explained: set[str] = set()
    print(f"faults {len(acted)}, incidents {len(incidents)}, of which {sum(bool(i['confirmed']) for i in incidents)} confirmed")
    nexts = [*(fault.start for fault in acted[1:]), float("inf")]
    for fault, following in zip(acted, nexts, strict=True):
        its = [i for i in incidents if fault.start <= _unix(i["opened"]) < min(fault.end + AFTER, following)]
        named = [i for i in its if i["cause"] == fault.fault]
        explained |= {i["id"] for i in named}
        lasted = fault.end - fault.start
        print(f"  {fault.fault} on {fault.rank} for {lasted:.0f} s: {len(named)} incident{'s' * (len(named) != 1)} of that name")
        for i in sorted(its, key=lambda i: str(i["opened"])):
            print("    " + _line(i, fault.start, told))
    strange = [i for i in incidents if i["id"] not in explained]
    loud = sum(any(t.incident == i["id"] for t in told) for i in strange)
    print(f"incidents that bear no fault's name: {len(strange)}, of which told {loud}")
    for i in strange:
        onset = max((f.start for f in acted if f.start <= _unix(i["opened"])), default=_unix(i["opened"]))
        print("    " + _line(i, onset, told))


def _line(i: dict[str, Any], onset: float, told: Sequence[Told]) -> str:
    after = ", ".join(f"{name} after {_unix(i[name]) - onset:.0f} s" for name in ("opened", "confirmed", "resolved") if i[name])
    count = {status: sum(t.incident == i["id"] and t.status == status for t in told) for status in ("firing", "resolved")}
    return f"{i['cause']} on {i['ranks']}: {after}; told {count['firing']} firing, {count['resolved']} resolved; {i['returns']} returns"


def _unix(moment: str) -> float:
    return datetime.fromisoformat(moment).timestamp()


def _buckets(page: str, source: str) -> list[tuple[float, float]]:
    found = re.findall(rf'^slowrank_scrape_late_seconds_bucket\{{[^\n]*le="([^"]+)",source="{source}"\}} (\S+)$', page, re.MULTILINE)
    return sorted((float(bound), float(count)) for bound, count in found)


def _quantile(buckets: Sequence[tuple[float, float]], share: float) -> float:
    return next(bound for bound, count in buckets if count >= share * buckets[-1][1])
