"""Cases that others reported, fed through the whole path: what really happened, and what slowrank says of it today.

The inputs are in tests/field_cases, each with its source and what was filled in. Pages are fed as they are; numbers of SGLang logs become
the /v1/loads page that a rank with these numbers would serve. What was published as a wait matrix, a profile or a client's figures is no
page of an engine, and is listed as not readable. A matrix of waits in dispatch is read beside the page of an engine whose ranks are level.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.accuracy.tables import table
from collector import deepxtrace
from collector.intake import Intake
from collector.model import Page, Source
from diagnose.engine import diagnose
from diagnose.model import Class, Verdict

FOLDER = Path(__file__).parents[2] / "tests" / "field_cases"
START = 1_795_996_800.0
ENGINE = "http://engine:30000"
SCRAPES = 12

Feed = Callable[["Case"], Sequence[Page]]


@dataclass(frozen=True, slots=True)
class Case:
    """`expected`: classes that are right; `ranks`: the culprits, where the case knows them. `feed` None: nothing that an engine serves."""

    id: str
    files: tuple[str, ...]
    happened: str
    expected: tuple[Class, ...]
    feed: Feed | None
    ranks: tuple[int, ...] = ()
    dispatch: bool = False  # the file is DeepXTrace's log of this engine


@dataclass(frozen=True, slots=True)
class Told:
    """A case with the verdict on it; None when it cannot be read."""

    case: Case
    verdict: Verdict | None

    @property
    def outcome(self) -> str:
        """right, abstains, wrong, or not readable."""
        if self.verdict is None:
            return "not readable"
        if self.verdict.klass in self.case.expected:
            named = self.verdict.ranks
            return "right" if not named or set(named) <= set(self.case.ranks) else "wrong"
        return "abstains" if self.verdict.klass is Class.INSUFFICIENT else "wrong"


def tell(case: Case) -> Told:
    """Feed one case. A page of a kind that this version does not read is not readable; nothing else is forgiven."""
    pages = case.feed(case) if case.feed is not None else ()
    if not pages:
        return Told(case, None)
    intake = Intake()
    for page in pages:
        intake.feed(page)
    window = intake.window(ENGINE)
    if case.dispatch:
        window = deepxtrace.attach(window, deepxtrace.parse((FOLDER / case.files[0]).read_text(), case.files[0]), case.files[0])
    return Told(case, diagnose(window).verdict)


def section(told: Sequence[Told]) -> str:
    """The table."""
    return table(
        ["case", "what really happened", "right is", "slowrank says", ""],
        (
            [
                t.case.id,
                t.case.happened,
                " or ".join(k.value for k in t.case.expected) + (f", engine {list(t.case.ranks)}" if t.case.ranks else ""),
                _words(t.verdict),
                t.outcome,
            ]
            for t in told
        ),
    )


def _words(verdict: Verdict | None) -> str:
    if verdict is None:
        return "-"
    return verdict.klass.value + (f": {verdict.cause}" if verdict.cause else "") + (f" on {list(verdict.ranks)}" if verdict.ranks else "")


def _page(source: Source, body: bytes, at: float) -> Page:
    return Page(ENGINE, ENGINE, source, START + at, 0.01, 200, "text/plain", body)


def _repeated(case: Case) -> Sequence[Page]:
    body = (FOLDER / case.files[0]).read_bytes()
    return [_page(Source.SGLANG_METRICS, body, 2.0 * i) for i in range(SCRAPES)]


def _loads(entries: Sequence[dict[str, float]]) -> Sequence[Page]:
    pages = []
    for i in range(SCRAPES):
        now = [entry | {"timestamp": START + i} for entry in entries]
        pages.append(_page(Source.SGLANG_LOADS, json.dumps({"timestamp": "2026-11-30T00:00:00+00:00", "loads": now}).encode(), float(i)))
    return pages


def _log(case: Case) -> Sequence[Page]:
    """Decode lines of SGLang's log, one rank each."""
    text = "\n".join(line for line in (FOLDER / case.files[0]).read_text().splitlines() if not line.startswith("#"))
    found = re.findall(
        r"(?:DP(\d+) )?TP\d+\] Decode batch.*?#running-req: (\d+)(?:.*?token: (\d+))?.*?(?:#queue-req: (\d+))?$", text, re.MULTILINE
    )
    return _loads(
        [
            {
                "dp_rank": int(rank or 0),
                "num_running_reqs": int(running),
                "num_used_tokens": int(tokens or 0),
                "num_waiting_reqs": int(queue or 0),
                "max_total_num_tokens": 10**6,
            }
            for rank, running, tokens, queue in found
        ]
    )


def _level(_: Case) -> Sequence[Page]:
    """An engine of sixteen ranks that all hold the same."""
    held = {"num_running_reqs": 16, "num_waiting_reqs": 0, "num_used_tokens": 65_536, "max_total_num_tokens": 10**6}
    return _loads([{"dp_rank": rank, **held} for rank in range(16)])


def _admissions(case: Case) -> Sequence[Page]:
    told = json.loads((FOLDER / case.files[0]).read_text())
    worst = next(run["r"] for run in told["new_seq_admissions_first_30s"] if run["run"] == "LOW" and run["range"] == 0)
    return _loads(
        [
            {
                "dp_rank": rank,
                "num_running_reqs": n,
                "num_waiting_reqs": 0,
                "num_used_tokens": 16_384 * n,
                "max_total_num_tokens": 10**6,
            }
            for rank, n in enumerate(worst)
        ]
    )


def _lines(case: Case) -> Sequence[Page]:
    return [_page(Source.SGLANG_LOG, (FOLDER / case.files[0]).read_bytes(), 0.0)]


def _states(state: str) -> Feed:
    def feed(case: Case) -> Sequence[Page]:
        body = json.dumps(json.loads((FOLDER / case.files[0]).read_text())[state]).encode()
        return [_page(Source.SGLANG_LOADS, body, float(i)) for i in range(SCRAPES)]

    return feed


def _as_loads(case: Case) -> Sequence[Page]:
    body = (FOLDER / case.files[0]).read_bytes()
    return [_page(Source.SGLANG_LOADS, body, float(i)) for i in range(2)]


def _vllm(name: str, every: float) -> Feed:
    """Pages or log lines of vLLM, once the collector reads that source."""
    source = next((s for s in Source if s.value == name), None)

    def feed(case: Case) -> Sequence[Page]:
        if source is None:
            return ()
        bodies = [(FOLDER / file).read_bytes() for file in case.files]
        return [_page(source, body, every * i) for i, body in enumerate(bodies * (1 if len(bodies) > 1 else SCRAPES))]

    return feed


NOBODY = (Class.HEALTHY, Class.OUTSIDE, Class.INSUFFICIENT)
"""Nothing is wrong with any rank: whoever blames none of them is right."""
SILENT = (Class.INSUFFICIENT,)
"""The page holds no evidence of slowness, of health neither."""
LOAD = (Class.LOAD,)
SINGLE = (Class.SINGLE_POINT,)

CASES = (
    Case("01", ("01-deepxtrace-ep16-slow-rank4.log",), "DeepXTrace wait matrix, rank 4 late", SINGLE, _level, (4,), dispatch=True),
    Case(
        "03",
        ("03-vllm48808-dp4-request-skew-t0.txt", "03-vllm48808-dp4-request-skew-t1.txt"),
        "vLLM DP4: running requests 8/8/8/8 become 27/5/0/0",
        LOAD,
        _vllm("vllm-metrics", 401.0),
        (0,),
    ),
    Case(
        "04", ("04-vllm36748-dp8-queue-pileup.log",), "vLLM DP8: queues pile up on engines 0 and 1", LOAD, _vllm("vllm-log", 10.0), (0, 1)
    ),
    Case(
        "05",
        ("05-vllm-ascend9673-dp-kv-runaway.log",),
        "vLLM DP: one engine's KV cache runs away, rates per request equal",
        LOAD,
        _vllm("vllm-log", 10.0),
        (3,),
    ),
    Case(
        "07",
        ("07-sglang35241-prefill-delayer-low-state.json",),
        "SGLang DP8: equal admissions, 30 % less throughput (phases of chunked prefill)",
        LOAD,
        _admissions,
    ),
    Case("08", ("08-sglang26248-retraction-collapse.log",), "SGLang: throughput falls 14 times after a full KV pool retracts", LOAD, _log),
    Case("09", ("09-sglang38118-dp8-pinned-at-15.log",), "SGLang DP8: every rank at its admission ceiling", NOBODY, _log),
    Case("10", ("10-sglang20766-dp8-15-uniformly-slow.log",), "SGLang DP16: first report after idling, all equal", NOBODY, _log),
    Case("11", ("11-sglang22877-prealloc-growth.log",), "SGLang PD: preallocation queue grows, compute idles", LOAD, _lines),
    Case(
        "12",
        ("12-vllm-metal479-livelock.txt",),
        "vLLM: work waits on an empty cache, nothing runs",
        (*SINGLE, *SILENT),
        _vllm("vllm-metrics", 2.0),
        (0,),
    ),
    Case("15", ("15-srtslurm332-cpu-numa-rotating-straggler.json",), "unpinned host, the slowest rank changes every step", SINGLE, None),
    Case("17", ("17-smg805-mixed-label-schemas.txt",), "page with mixed label sets", SILENT, _repeated),
    Case("18", ("18-aiperf1025-nan-gauge.txt",), "page with a NaN gauge", SILENT, _repeated),
    Case("19", ("19-sglang-priority-aggregate-label.txt",), "page with an aggregate beside its parts", SILENT, _repeated),
    Case("21", ("21-sglang37852-kvmem-zero.txt",), "gauge that is always 0", SILENT, _repeated),
    Case("23", ("23-smg813-colon-became-underscore.txt",), "gateway's page, colons became underscores", SILENT, _repeated),
    Case("24", ("24-sglang-get_load-list-shape.json",), "the list of the old /get_load", SILENT, _as_loads),
    Case("25 zeroed", ("25-v1loads-zeroed-and-empty.json",), "ranks that never published", SILENT, _states("zeroed")),
    Case("25 empty", ("25-v1loads-zeroed-and-empty.json",), "load list is empty", SILENT, _states("empty")),
    Case("26", ("26-kekzl1741-moe-expert-imbalance.txt",), "expert ratio of 15 on 40 tokens: noise", NOBODY, None),
    Case("28", ("28-sglang23393-tokenizer-bottleneck.json",), "tokenizer bound, ranks normal", NOBODY, None),
    Case("29", ("29-sglang7944-aborts-dominate.txt",), "most requests are aborted", SILENT, _repeated),
    Case("32", ("32-vllm37307-prefill-ramp.log",), "vLLM: prefill-bound ramp", (*LOAD, *NOBODY), _vllm("vllm-log", 10.0)),
    Case("34", ("34-ascend-skills84-two-suspects-of-four.json",), "two suspects of four", SILENT, None),
    Case("36", ("36-spec-accept-content-spread.json",), "streams differ by what they say, not by card", NOBODY, None),
)
