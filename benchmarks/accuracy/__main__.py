"""`python -m benchmarks.accuracy`: measures how often slowrank is right, and prints it; `--write` renews docs/accuracy.md.

    python -m benchmarks.accuracy [--quick] [--seeds N] [--rank-days N] [--jobs N] [--cache FOLDER] [--write]
    python -m benchmarks.accuracy --calibrate   # fit confidence on the tuning seeds, into diagnose/calibration.json; then measure

Figures are of simulated devices unless `--captures` names a folder of recorded runs. Every fault and every rule that exists takes part.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

from benchmarks.accuracy import alarms, calibrate, field, goals, observe, plan, runs, work
from benchmarks.accuracy.document import ablation_section, document, renewed
from benchmarks.accuracy.judge import Judged
from benchmarks.accuracy.plan import Spec
from benchmarks.accuracy.stats import wilson
from diagnose.confidence import calibration
from workload.config import DeviceKind

ROOT = Path(__file__).parents[2]
QUICK_PRESETS = 1
RANK_DAYS = 4.0  # what makes the whole command about ten minutes of one core
CALIBRATION_SEEDS = 3  # of the tuning seeds, each on two of the six kinds of traffic; about ten minutes of one core
MORE = 2
"""Times as many seeds, with the others looked at in full only: a confidence is at most what a rule's own runs leave to believe, and 36
without a fault leave more than 18 do."""


Task = tuple[Spec, work.Depth]


IN_REAL_TIME = (
    "context_length_skew",
    "request_count_skew",
    "long_prefill",
    "host_cpu_starved",
    "slow_rank",
    "expert_hotspot",
    "whole_group_slow",
)
"""Faults of each class, of those whose evidence is on an engine's own pages: what virtual time plays is held against real processes."""


def tasks(first: int, seeds: int, presets: tuple[str, ...], severities: tuple[float, ...], *, quick: bool) -> list[Task]:
    """The test runs. At full severity every signal is removed in turn; half of these runs are read with less, a third are timed."""
    chosen = range(first, first + seeds)
    out: list[Task] = []
    kinds = len(presets) * len(severities)
    for n, spec in enumerate(plan.single(chosen, presets, severities)):
        turn = n + n // kinds  # so that each fault's turn falls on another kind of traffic
        full = spec.schedule[0].severity == plan.full_severity(spec.about) and not (quick and n % 4)
        polls, ablate = full and turn % 3 == 0, full and turn % 2 == 0
        out.append((spec, work.Depth(polls=polls, incidents=True, ablate=ablate, remove=full)))
    out += [(s, work.Depth(ablate=True, remove=True)) for s in plan.healthy(range(first, first + 2 * seeds), presets)]
    if not quick:
        out += [(s, work.Depth(incidents=True)) for s in plan.single(chosen, presets[:1], plan.FAINT, group="faint")]
    out += [(s, work.Depth()) for s in plan.mixtures(chosen, presets[: 1 if quick else 2])]
    out += [(s, work.Depth()) for s in plan.single(chosen, presets[: 1 if quick else 2], (1.0,), group="start", onset=0.0)]
    return out


def real_tasks(refused: list[str], seeds: int, device: DeviceKind) -> list[Task]:
    """Runs with real processes: what virtual time refuses, and faults of each class beside it."""
    names = {text.partition(":")[0] for text in refused} | set(IN_REAL_TIME)
    wanted = plan.single(range(plan.TEST, plan.TEST + seeds), ("chat",), (1.0,), group="real")
    return [(plan.in_real_time(s, device), work.Depth(remove=True)) for s in wanted if s.about in names]


def calibrated(folder: Path, jobs: int, count: int) -> None:
    """Fit the confidence on so many tuning seeds and store it."""
    seeds = plan.TUNING[: MORE * count]
    deep, kinds = work.Depth(ablate=True), plan.presets()
    todo: list[Task] = []
    for n, seed in enumerate(seeds):
        depth = deep if n < count else work.Depth()
        todo += [(s, depth) for s in plan.single([seed], kinds[seed % 3 :: 3], (0.3, *plan.SEVERITIES))]
    for seed in plan.TUNING:
        todo += [(s, deep) for s in plan.healthy([seed], (kinds[seed % len(kinds)], kinds[(seed + 3) % len(kinds)]))]
    done, _ = work.judged(todo, folder, jobs, "calibration runs")
    found = calibrate.fit(done, f"python -m benchmarks.accuracy --calibrate --calibration-seeds {count}", f"{seeds[0]} to {seeds[-1]}")
    (ROOT / "diagnose" / "calibration.json").write_bytes(calibrate.encoded(found))
    calibration.cache_clear()
    curve = ", ".join(f"{s:g}: {c:g}" for s, c in zip(found.stated, found.calibrated, strict=True))
    print(f"confidence: {found.verdicts} verdicts of {found.runs} runs; healthy {found.healthy}; {curve}")


def measured(asked: argparse.Namespace, folder: Path) -> str:
    """Everything, as the document."""
    presets = plan.presets()[:QUICK_PRESETS] if asked.quick else plan.presets()
    todo = tasks(plan.TEST, asked.seeds, presets, (1.0,) if asked.quick else asked.severities, quick=asked.quick)
    done, refused = work.judged(todo, folder, asked.jobs, "labelled runs")
    groups: dict[str, list[Judged]] = {}
    for run in done:
        groups.setdefault(run.spec.group, []).append(run)
    plain = groups["single"] + groups["healthy"]
    days = asked.rank_days if asked.rank_days is not None else 0.17 if asked.quick else RANK_DAYS
    calm = work.spread(alarms.watch, alarms.segments(days), asked.jobs, "healthy half hours")
    reliability, error = calibrate.section(plain)
    rows = [*goals.classes(plain), *goals.mixtures(groups["mixture"]), *goals.alarms(calm), goals.misblame(plain + groups.get("faint", []))]
    rows += [*goals.times(groups["single"]), goals.power(groups["single"] + groups.get("faint", [])), *goals.from_start(groups["start"])]
    rows += [goals.removed(plain), goals.Goal("-", "expected calibration error", "", error)]
    sections = [("Less read", ablation_section(plain)), ("Confidence", _confidence(reliability))]
    sections.append(("Real time and GPUs", _elsewhere(asked, folder, refused)))
    sections.append(("Cases from the field", field.section([field.tell(case) for case in field.CASES])))
    return document(_head(asked, presets, len(done), refused), rows, sections)


def _confidence(reliability: str) -> str:
    table = calibration()
    return (
        f"Fitted on {table.verdicts} verdicts of {table.runs} runs of seeds {table.seeds}, device {table.device} (`{table.made_by}`). On "
        "the test seeds, a verdict is right when class and cause are the injected fault's and no rank is named that it did not harm:\n\n"
        f"{reliability}\n\nThe sample holds far more faults than a service sees, so there a finding is right less often than here, and "
        f"`healthy` more often: its confidence, {table.healthy:.0%} when everything was looked at, is for a world in which every second "
        "window has a fault."
    )


def _elsewhere(asked: argparse.Namespace, folder: Path, refused: list[str]) -> str:
    parts = []
    if asked.real_time:
        done, _ = work.judged(real_tasks(refused, asked.real_time, asked.device), folder, 1, "real-time runs")
        parts += [f"With real processes on the {asked.device} device:\n\n" + goals.listed(done)]
        parts.append(f"Classes right in real time: {wilson(sum(r.observed.main.klass == r.truth.klass for r in done), len(done))}.")
    else:
        parts.append("No real-time run was asked for (`--real-time N`).")
    found = runs.recorded(asked.captures, plan.ONSET) if asked.captures else []
    if found:
        gpu = [work.look_at(plan.recorded(m.capture.parent.name), work.Depth(remove=True), m) for m in found]
        parts.append("Recorded runs:\n\n" + goals.listed(gpu))
    else:
        parts.append("No figure comes from a GPU: there are no GPU captures yet (`--captures FOLDER` reads them when there are).")
    return "\n\n".join(parts)


def _head(asked: argparse.Namespace, presets: tuple[str, ...], count: int, refused: list[str]) -> str:
    options = "".join(
        (" --quick" if asked.quick else "", f" --seeds {asked.seeds}", f" --rank-days {asked.rank_days:g}" if asked.rank_days else "")
    )
    options += "" if asked.severities == plan.SEVERITIES else " --severities " + ",".join(f"{share:g}" for share in asked.severities)
    options += f" --real-time {asked.real_time} --device {asked.device}" if asked.real_time else ""
    idle = [f"{fault}: only with {' and '.join(kinds)} from {least:g} of its severity on" for fault, (kinds, least) in plan.IDLE.items()]
    cannot = "; ".join([*refused, *idle])
    return (
        f"Generated by `python -m benchmarks.accuracy{options} --write`: {count} labelled runs, seeds from {plan.TEST} on, traffic "
        f"{', '.join(presets)}. Limits of the rules were chosen on seeds {plan.TUNING[0]} to {plan.TUNING[-1]} with all of them. "
        "Simulated devices in virtual time, pages through the collector. Verdicts are those of `slowrank serve` with its defaults: windows "
        f"of {observe.WINDOW:.0f} s from five seconds after the onset, a page of /metrics every {observe.READS.metrics:.0f} s, a healthy "
        f"past of {observe.PAST:.0f} s; label files opened by the scorer alone. Intervals: Wilson, bootstrap for F1 and times, Poisson for "
        f"rates.\n\nNot played in virtual time, or not with every kind of traffic: {cannot}. The design sets no figure G9."
    )


def _shares(text: str) -> tuple[float, ...]:
    shares = tuple(float(part) for part in text.split(","))
    if not all(0 < share <= 1 for share in shares):
        raise argparse.ArgumentTypeError(f"{text!r}: give shares above 0 and up to 1, such as 0.6,1")
    return shares


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.accuracy", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="one kind of traffic and few runs: under a minute, shows that it works")
    parser.add_argument("--seeds", type=int, default=1, help="test seeds for each fault, severity and kind of traffic")
    parser.add_argument("--severities", type=_shares, default=plan.SEVERITIES, help="shares of full strength; 0.6,1 by default")
    parser.add_argument("--rank-days", type=float, help=f"of healthy load; {RANK_DAYS:g} by default")
    parser.add_argument("--real-time", type=int, default=0, metavar="N", help="seeds of runs with real processes, about ten minutes each")
    parser.add_argument("--device", choices=("virtual", "cpu", "cuda"), default="virtual", help="of the runs with real processes")
    parser.add_argument("--captures", type=Path, help="runs recorded elsewhere: the --cache of --real-time N --device cuda")
    parser.add_argument("--cache", type=Path, help="folder that keeps captures between runs; a temporary one by default")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--calibrate", action="store_true", help="first fit the confidence again, into diagnose/calibration.json")
    parser.add_argument(
        "--calibration-seeds",
        type=int,
        default=CALIBRATION_SEEDS,
        help=f"of the {len(plan.TUNING)} tuning seeds; as many again are looked at without ablations, as far as there are",
    )
    parser.add_argument("--write", action="store_true", help="renew docs/accuracy.md")
    asked = parser.parse_args()
    if asked.seeds < 1 or asked.jobs < 1 or asked.jobs > (os.cpu_count() or 1):
        parser.error(f"--seeds {asked.seeds}, --jobs {asked.jobs}: give at least 1, and at most {os.cpu_count()} jobs")
    if not 1 <= asked.calibration_seeds <= len(plan.TUNING):
        parser.error(f"--calibration-seeds {asked.calibration_seeds}: give 1 to {len(plan.TUNING)}; the others are test seeds")
    with tempfile.TemporaryDirectory(prefix="slowrank-accuracy-") as temporary:
        folder = asked.cache or Path(temporary)
        if asked.calibrate:
            calibrated(folder, asked.jobs, asked.calibration_seeds)
        text = measured(asked, folder)
    print(text)
    if asked.write:
        place = ROOT / "docs" / "accuracy.md"
        place.write_text(renewed(text, place.read_text(encoding="utf-8")), encoding="utf-8")
        print("wrote docs/accuracy.md", file=sys.stderr)


if __name__ == "__main__":
    main()
