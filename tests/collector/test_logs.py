"""Engines' log lines into readings: the forms of real logs, what a cut or mixed file costs, and that nothing in a file is trusted."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from collector import signals
from collector.engines.vllm_metrics import GENERATED
from collector.intake import Intake
from collector.logs import sglang_lines, vllm_lines
from collector.logs.line import Stamp
from collector.logs.read import Log
from collector.model import Reading, Source, Window

CASES = Path(__file__).parents[1] / "field_cases"

DECODE = (
    "[2026-03-17 17:35:{s:02d} DP{r} TP{r}] Decode batch, #running-req: {n}, #token: {t}, token usage: 0.25, cuda graph: True, "
    "gen throughput (token/s): {g}, #queue-req: 1"
)
ITERATION = (
    "(APIServer pid=1) INFO 11-29 23:44:{s:02d} [loggers.py:199] Engine {r:03d}: Iteration({i}): 0 context requests, {c} context tokens, "
    "3 generation requests, 3 generation tokens, iteration elapsed time: {ms} ms, CPU KV cache usage: 0.2%"
)
STATS = (
    "(APIServer pid=1) INFO 12-31 23:59:{s:02d} [loggers.py:257] Engine {r:03d}: Avg prompt throughput: 16.5 tokens/s, Avg generation "
    "throughput: {g} tokens/s, Running: 51 reqs, Waiting: 117 reqs, GPU KV cache usage: 98.6%, Prefix cache hit rate: 70.0%"
)


def load(text: str | bytes, name: str = "engine.log") -> tuple[list[Reading], Log]:
    log = Log(name, 2026)
    raw = text.encode() if isinstance(text, str) else text
    return list(log.readings(raw.splitlines(keepends=True))), log


def said(log: Log) -> str:
    return "\n".join(map(str, log.problems()))


def window(text: str | bytes) -> Window:
    readings, _ = load(text)
    intake = Intake(depth_s=600.0)
    for reading in readings:
        intake.take(reading)
    return intake.window("engine.log")


def case(name: str) -> str:
    return next(CASES.glob(f"{name}-*")).read_text()


def decode(r: int, s: int, n: int = 10, t: int = 5000, g: float = 200.0) -> str:
    return DECODE.format(r=r, s=s, n=n, t=t, g=g)


def test_step_time_and_tokens_of_sglangs_decode_lines() -> None:
    """200 tokens a second from 10 requests are 20 steps a second, whatever the interval between the lines; gauges as they are written."""
    found = window("\n".join(decode(r, s, n=10 * (r + 1), g=200.0 * (r + 1)) for s in range(0, 40, 2) for r in range(3)))
    assert (found.engine.kind, found.ranks) == ("sglang", (0, 1, 2))
    assert found.mean(signals.RUNNING) == pytest.approx([10, 20, 30])
    assert found.mean(signals.WAITING) == pytest.approx([1, 1, 1])
    assert found.mean(signals.RESIDENT_TOKENS) == pytest.approx([5000] * 3)
    assert found.mean(signals.KV_USAGE) == pytest.approx([0.25] * 3)
    assert found.mean(signals.ATTENTION_TOKENS) == pytest.approx([200, 400, 600])
    assert found.mean(signals.DECODE_TIME) / found.mean(signals.DECODE_STEPS) == pytest.approx([0.05] * 3)


def test_accepted_drafts_are_tokens_of_one_step() -> None:
    """With an accept length of 2.5 the same throughput is of fewer steps."""
    line = sglang_lines.parse(decode(0, 1) + ", accept len: 2.50, accept rate: 0.80")
    assert line is not None
    assert line.tokens_a_step == 25.0


def test_idle_time_between_two_lines_is_no_step_time() -> None:
    """A line after a lull: its mean holds the lull. The tokens count, the step time does not."""
    lines = [decode(0, s) for s in (0, 2, 4, 6)] + [decode(0, 40, g=10.0)] + [decode(0, s) for s in (42, 44)]
    readings, _ = load("\n".join(lines))
    times = [r.values[signals.DECODE_TIME][0] for r in readings if signals.DECODE_TIME in r.values]
    assert times == [2.0, 4.0, 4.0, 6.0, 8.0]
    assert readings[-1].values[signals.ATTENTION_TOKENS][0] == 200 * 6 + 10 * 34 + 200 * 4


@pytest.mark.parametrize(
    ("text", "rank", "gauges"),
    [
        ("[2026-05-24 03:51:45 TP0] Decode batch. #running-req: 4, #token: 7, gen throughput (token/s): 1.5", None, {signals.RUNNING: 4.0}),
        (
            "2026-05-24 03:51:44 DP9 TP9 EP9] Decode batch [123], #running-req: 4, #queue-req: 3",
            9,
            {signals.RUNNING: 4.0, signals.WAITING: 3.0},
        ),
        (
            "[2026-05-24 03:51:45 DP0 TP0] Decode batch, #full token: 264, full token usage: 1.00, #swa token: 145",
            0,
            {signals.KV_USAGE: 1.0},
        ),
        (
            "[2026-04-15 17:13:10][mixin.py:424][INFO]: Prefill batch, #new-seq: 1, #new-token: 12, #queue-req: 2",
            None,
            {signals.WAITING: 2.0},
        ),
    ],
)
def test_forms_of_sglangs_lines(text: str, rank: int | None, gauges: dict[str, float]) -> None:
    """Brackets, separators, further ranks and other names of the fields, as they stand in reports."""
    line = sglang_lines.parse(text)
    assert line is not None
    assert line.rank == rank
    assert line.gauges.items() >= gauges.items()


def test_sglangs_prefill_lines_add_up() -> None:
    """Each batch counts, in the second in which it came."""
    text = "\n".join(
        f"[2026-03-17 17:35:{s:02d} DP0 TP0] Prefill batch, #new-seq: 1, #new-token: 100, #cached-token: 30, #queue-req: 0"
        for s in (1, 1, 2, 3)
    )
    readings, _ = load(text)
    assert [r.values[signals.PREFILL_TOKENS][0] for r in readings] == [200.0, 300.0, 400.0]
    assert readings[-1].values[signals.CACHED_TOKENS][0] == 120.0


def test_vllms_iterations_are_steps_with_their_time() -> None:
    """Three steps of 40 and 80 ms a second on two engines."""
    text = "\n".join(ITERATION.format(s=s, r=r, i=3 * s + k, c=5, ms=40.0 * (r + 1)) for s in range(12) for k in range(3) for r in (0, 1))
    found = window(text)
    assert (found.engine.kind, found.ranks) == ("vllm", (0, 1))
    assert found.mean(signals.DECODE_TIME) / found.mean(signals.DECODE_STEPS) == pytest.approx([0.04, 0.08])
    assert found.mean(signals.ATTENTION_TOKENS) == pytest.approx([24.0, 24.0])  # (5 + 3) tokens, 3 times a second


def test_vllms_statistics_give_no_step_time() -> None:
    """Requests in prefill run too, so that throughput over requests is none: 18 tokens/s from 10 requests is no slow card."""
    found = window(case("32"))
    assert not found.has(signals.DECODE_TIME)
    assert found.mean(signals.WAITING)[0] > 60


def test_vllms_lines_of_the_field() -> None:
    """Engine numbers, counts and KV usage as the report prints them; the specdecode line between them is no report of an engine."""
    readings, log = load(case("04"))
    assert [(next(iter(r.times)), r.values[signals.WAITING], r.values[signals.KV_USAGE]) for r in readings] == [
        (0, {0: 117.0}, {0: 1.0}),
        (1, {1: 108.0}, {1: pytest.approx(0.986)}),
    ]
    readings, log = load(case("05"))
    assert {next(iter(r.times)) for r in readings} == {0, 3}
    assert "could not be read" not in said(log)


def test_a_year_that_is_not_written_goes_on() -> None:
    """December is followed by January of the next year, ten seconds later."""
    text = STATS.format(s=55, r=0, g=10.0) + "\n" + STATS.format(s=5, r=0, g=10.0).replace("12-31 23:59", "01-01 00:00")
    readings, _ = load(text)
    assert readings[1].arrived - readings[0].arrived == 10.0
    assert readings[1].values[GENERATED] == {0: 100.0}


def test_ranks_whose_lines_are_far_apart_are_not_gone() -> None:
    """45 s between the lines of two engines, each at its own 45 s."""
    text = "\n".join(STATS.format(s=s % 60, r=r, g=10.0) for s in range(0, 60, 20) for r in (0, 1))
    assert not any("gone" in str(p) or "appeared" in str(p) for p in window(text).problems)


def test_only_one_process_of_a_rank_speaks() -> None:
    """Two TP ranks of one DP rank write the same: it is counted once."""
    both = [decode(0, s).replace("TP0", f"TP{t}") for s in range(0, 20, 2) for t in (1, 0)]
    assert window("\n".join(both)).mean(signals.ATTENTION_TOKENS) == pytest.approx([200.0])


def test_a_cut_line_costs_itself_and_is_counted() -> None:
    """At the start and at the end of a rotated file."""
    whole = [decode(0, s) for s in range(0, 20, 2)]
    cut = "n-req: 4, Decode batch, #runn\n" + "\n".join(whole) + "\n" + decode(0, 22)[:45]
    readings, log = load(cut)
    assert readings == load("\n".join(whole))[0]
    assert "2 reports could not be read" in said(log)


def test_what_else_is_wrong_is_said() -> None:
    """Another engine's lines, lines without a rank, and times that go back; the rest is read."""
    good = [decode(0, s) for s in range(10, 30, 2)]
    expected = load("\n".join(good))[0]
    for bad, words in (
        (STATS.format(s=1, r=0, g=1.0), "1 reports of another engine"),
        (decode(0, 31).replace("DP0 ", ""), "1 reports without a rank"),
        (decode(0, 1), "1 reports are older"),
    ):
        readings, log = load("\n".join([*good, bad]))
        assert readings == expected
        assert words in said(log)
    assert "no line of a batch" in said(load("hello\n")[1])


@pytest.mark.parametrize("mark", ["pid={w})", "host python[{w}]: (APIServer)", "engine-{w}   | (APIServer)"])
def test_two_engines_of_one_kind_in_one_file_are_not_mixed(mark: str) -> None:
    """Their ranks have the same numbers: the reports of one of them are left out and counted. A restart is no second engine."""

    def report(writer: int, s: int, g: float) -> str:
        return STATS.format(s=s, r=0, g=g).replace("(APIServer pid=1)", mark.format(w=writer))

    two = [report(w, 10 * k, g) for k in range(6) for w, g in ((1, 100.0), (2, 900.0))]
    readings, log = load("\n".join(two))
    assert "5 reports are by another process" in said(log)
    assert readings[-1].values[GENERATED][0] == pytest.approx(900.0 * 50)
    restarted = [report(1 + (k > 2), 10 * k, 100.0) for k in range(6)]
    assert "another process" not in said(load("\n".join(restarted))[1])


def test_a_file_that_was_emptied_while_it_was_written_is_read_on() -> None:
    """logrotate's copytruncate leaves a hole of NUL bytes before the line that the engine writes next."""
    whole = [decode(0, s) for s in range(0, 20, 2)]
    holed = b"\0" * 5000 + "\n".join(whole).encode()
    assert load(holed)[0] == load("\n".join(whole))[0]


def test_rotated_files_that_overlap_count_a_report_once() -> None:
    """The same reports again, after the copy and before the cut: they are older than the last one, and said to be."""
    whole = [decode(0, s) for s in range(0, 20, 2)]
    readings, log = load("\n".join([*whole, *whole[-4:], decode(0, 20)]))
    assert readings == load("\n".join([*whole, decode(0, 20)]))[0]
    assert "3 reports are older" in said(log)


def test_what_is_no_text_is_no_harm() -> None:
    """Bytes of no encoding between and in lines."""
    whole = [decode(0, s).encode() for s in range(0, 20, 2)]
    readings, _ = load(b"\n\xff\xfe\x00\n".join(whole))
    assert readings == load(b"\n".join(whole))[0]
    assert len(load(b"\xff " + whole[0])[0]) == 1


NOISE = st.one_of(
    st.text(max_size=80), st.sampled_from(["INFO: 127.0.0.1 GET /health", "[2026-03-17 17:35:07 DP9 TP9] max_total_num_tokens=1"])
)
REPORTS = st.builds(decode, st.integers(0, 3), st.integers(0, 59), st.integers(0, 99), st.integers(0, 10**6), st.floats(0, 1e5))


@given(st.lists(REPORTS, max_size=12), st.lists(NOISE, max_size=12), st.randoms(use_true_random=False))
def test_lines_between_reports_change_nothing(reports: list[str], noise: list[str], chance) -> None:
    """Interleaved access logs and prints leave the readings as they are."""
    noise = [line for line in noise if not any(mark in line for mark in (*sglang_lines.MARKS, *vllm_lines.MARKS))]
    mixed = list(reports)
    for line in noise:
        mixed.insert(chance.randint(0, len(mixed)), " ".join(line.splitlines()))
    assert load("\n".join(mixed))[0] == load("\n".join(reports))[0]


@given(st.lists(REPORTS, min_size=1, max_size=8), st.data())
def test_a_file_cut_anywhere_gives_what_stands_before(reports: list[str], data: st.DataObject) -> None:
    """Counters of the cut file are those of the whole one so far, and at most one report is unreadable."""
    text = "\n".join(reports)
    cut = text[: data.draw(st.integers(0, len(text)))]
    whole = cut.rpartition("\n")[0]
    readings, log = load(cut)
    assert log._unread <= 1
    before = load(whole)[0]
    assert len(before) <= len(readings) + 1
    assert {r.node for r in before} <= {r.node for r in readings} or not readings


@given(st.lists(st.binary(max_size=200), max_size=20))
@example([b"Decode batch, [2026-99-99 99:99:99 DP0] Decode batch, #running-req: 1"])
@example([b"INFO 02-30 00:00:00 [x] Engine 0: Avg prompt throughput: 1 tokens/s, Avg generation throughput: 1 tokens/s, Running: 1 reqs"])
def test_whatever_a_file_holds_nothing_is_raised(lines: list[bytes]) -> None:
    """Values are finite and not negative."""
    log = Log("x", 2026)
    for reading in log.readings(lines):
        assert all(value >= 0 for found in reading.values.values() for value in found.values())
    log.problems()


def test_stamps_and_sources() -> None:
    """What the two forms say of time."""
    one, two = sglang_lines.parse(decode(0, 7)), vllm_lines.parse(STATS.format(s=5, r=2, g=1.0))
    assert one is not None
    assert two is not None
    assert (one.source, one.stamp) == (Source.SGLANG_LOG, Stamp(2026, 3, 17, 17, 35, 7))
    assert (two.source, two.stamp, two.rank) == (Source.VLLM_LOG, Stamp(None, 12, 31, 23, 59, 5), 2)
