"""The series of our own /metrics: each name, unit and label once, for the exporter that fills them and the dashboards and Prometheus rules
that read them.

Names follow Prometheus' conventions: base unit in the name, `_total` on what only grows. Identity is in labels, numbers never are.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from collector.signals import CATALOGUE, DISPATCH_AWAITED, DISPATCH_WAIT, Scope, Signal
from collector.signals import Kind as SignalKind


class Kind(Enum):
    """A Prometheus metric type."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Exported:
    """One series family of our page. A counter's `name` has its `_total`; a histogram's is without `_bucket`, `_sum` and `_count`."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...]
    bounds: tuple[float, ...] = ()  # of a histogram's buckets, rising; all above the last are in one more

    @property
    def series(self) -> tuple[str, ...]:
        """The names under which its samples are on the page."""
        return tuple(self.name + end for end in _PARTS) if self.kind is Kind.HISTOGRAM else (self.name,)


_PARTS = ("_bucket", "_sum", "_count")


UNITS = {"1": "", "s": "seconds", "Hz": "hertz", "W": "watts", "C": "celsius", "B": "bytes", "B/s": "bytes_per_second"}
"""A signal's unit as Prometheus writes it; one that is not here is written as it is."""


def of_signal(signal: Signal) -> Exported:
    """The family of a canonical signal: per engine and rank, or per engine. A counter is exported as counted, resets taken out."""
    unit = UNITS.get(signal.unit, signal.unit.replace("/", "_per_"))
    name = f"slowrank_{signal.name}"
    if unit and not name.endswith(f"_{unit}"):
        name += f"_{unit}"
    counter = signal.kind is SignalKind.COUNTER
    labels = ("engine", "rank") if signal.scope is Scope.RANK else ("engine",)
    return Exported(name + "_total" * counter, Kind.COUNTER if counter else Kind.GAUGE, signal.about, labels)


FROM_A_LOG = frozenset({DISPATCH_WAIT, DISPATCH_AWAITED})
"""Signals out of a file that `slowrank diagnose` is given; the service, whose page this is, reads none."""


def of_signals() -> dict[str, Exported]:
    """Canonical name -> family, for each signal that the page can hold. What cards and processes count is not among them: only a window
    joins those to ranks, and a window holds a rate, which is no total."""
    return {name: of_signal(signal) for name, signal in CATALOGUE.items() if name not in FROM_A_LOG and not _counts_of_machines(signal)}


def _counts_of_machines(signal: Signal) -> bool:
    return signal.optional and signal.kind is SignalKind.COUNTER


OK = "ok"
"""The value of a label `outcome` of what went well."""

FAMILIES: dict[str, Exported] = {}
"""Every family that is not a signal, by name."""


def _family(name: str, kind: Kind, about: str, *labels: str, bounds: tuple[float, ...] = ()) -> str:
    FAMILIES[name] = Exported(name, kind, about, labels, bounds)
    return name


LATE_BOUNDS = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
"""s. A tenth of the 1 s between two /v1/loads pages is what 99 % of scrapes should keep; half of it is what windows can bear; 10 ms is a
loop with nothing else to do."""


STEP_SECONDS = _family("slowrank_step_seconds", Kind.GAUGE, "Step time of the group in the last window", "engine")
WAIT = _family("slowrank_wait_per_step_seconds", Kind.GAUGE, "Wait of a rank in the host exchanges of a step", "engine", "rank")
LATENESS = _family("slowrank_lateness_seconds", Kind.GAUGE, "How late a rank is at the host exchange of a step", "engine", "rank")
LOST = _family("slowrank_lost_time_ratio", Kind.GAUGE, "Share of step time lost, by cause; unexplained included", "engine", "cause")
VERDICT = _family("slowrank_verdict", Kind.GAUGE, "1 for the verdict of the last window", "engine", "class", "cause", "severity")
CONFIDENCE = _family("slowrank_verdict_confidence_ratio", Kind.GAUGE, "How sure the verdict is", "engine")
CULPRIT = _family("slowrank_culprit", Kind.GAUGE, "1 for each rank that the verdict names", "engine", "rank", "cause")
INCIDENT = _family("slowrank_incident", Kind.GAUGE, "Incidents that are not resolved", "engine", "class", "cause", "severity", "state")
DIAGNOSED_AT = _family("slowrank_diagnosis_timestamp_seconds", Kind.GAUGE, "Unix time of the end of the last window", "engine")
DIAGNOSES = _family("slowrank_diagnoses_total", Kind.COUNTER, "Diagnoses made", "engine")
DIAGNOSIS_SECONDS = _family("slowrank_diagnosis_seconds_total", Kind.COUNTER, "CPU time of diagnoses", "engine")
RULE_FAILURES = _family("slowrank_rule_failures_total", Kind.COUNTER, "Diagnosis rules that raised an error", "rule")
SCRAPES = _family("slowrank_scrapes_total", Kind.COUNTER, "Pages asked for, by what came back", "engine", "node", "source", "outcome")
SCRAPE_SECONDS = _family("slowrank_scrape_seconds_total", Kind.COUNTER, "Time from request to reply", "engine", "node", "source")
SCRAPE_BYTES = _family("slowrank_scrape_bytes_total", Kind.COUNTER, "Bytes of pages read", "engine", "node", "source")
SCRAPE_LATE = _family(
    "slowrank_scrape_late_seconds",
    Kind.HISTOGRAM,
    "How late scrapes began, against when they were due",
    "engine",
    "source",
    bounds=LATE_BOUNDS,
)
PAGE_AGE = _family("slowrank_page_age_seconds", Kind.GAUGE, "Age of the newest page of a source", "engine", "node", "source")
SCRAPE_INTERVAL = _family("slowrank_scrape_interval_seconds", Kind.GAUGE, "Time between two pages of a source now", "engine", "source")
SCRAPE_BUDGET = _family("slowrank_scrape_budget_ratio", Kind.GAUGE, "Share of one core of a node that reading it may cost")
ENGINE_UP = _family("slowrank_engine_up", Kind.GAUGE, "1 while usable pages of the engine come, else 0", "engine")
ENGINE_LABELS = _family("slowrank_engine_labels", Kind.GAUGE, "1; the labels of the engine's targets, each with label_ before it", "engine")
ENGINE_INFO = _family(
    "slowrank_engine_info", Kind.GAUGE, "1; what the engine says of itself", "engine", "kind", "version", "model", "role", "card", "clock"
)
ENGINE_RANKS = _family("slowrank_engine_ranks", Kind.GAUGE, "Ranks that the engine should have", "engine")
ENGINE_CARDS = _family("slowrank_engine_cards", Kind.GAUGE, "Accelerator cards of the whole engine", "engine")
TOKEN_BYTES = _family("slowrank_engine_kv_token_bytes", Kind.GAUGE, "KV cache of one token on one rank, all layers", "engine")
BREAKAGES = _family("slowrank_engine_breakages_total", Kind.COUNTER, "Watches that broke by a defect and began anew", "engine")
PROBLEMS = _family("slowrank_problems", Kind.GAUGE, "Problems of targets, receivers and files now", "where")
EXPORT_FAILURES = _family("slowrank_export_failures_total", Kind.COUNTER, "Parts of this page that could not be made", "part")
STORE_BYTES = _family("slowrank_store_bytes", Kind.GAUGE, "Memory of the last minutes of an engine", "engine")
RESIDENT_BYTES = _family("slowrank_resident_memory_bytes", Kind.GAUGE, "Resident memory of this process")
TASKS = _family("slowrank_tasks", Kind.GAUGE, "Asyncio tasks of this process")
DESCRIPTORS = _family("slowrank_open_fds", Kind.GAUGE, "Open file descriptors of this process")
DELIVERIES = _family("slowrank_deliveries_total", Kind.COUNTER, "Attempts to notify a receiver, by outcome", "receiver", "outcome")
OUTBOX = _family("slowrank_outbox_pending", Kind.GAUGE, "Notifications that a receiver has not taken yet", "receiver")
RELOADS = _family("slowrank_config_reloads_total", Kind.COUNTER, "Reloads of the configuration, by outcome", "outcome")
BUILD = _family("slowrank_build_info", Kind.GAUGE, "1; the running version", "version")

FACT_LABELS = {"version": "version", "model": "model", "role": "role", "accelerator": "card", "clock": "clock"}
"""Field of `collector.model.Facts` to the label of ENGINE_INFO that says it; empty: not known."""

FACT_NUMBERS = {"expected_ranks": ENGINE_RANKS, "cards": ENGINE_CARDS, "kv_bytes_per_token": TOKEN_BYTES}
"""The same of its numbers, to the family whose value it is."""
