"""The document made of the figures."""

from __future__ import annotations

from benchmarks.accuracy import document, goals
from benchmarks.accuracy.alarms import Alarms, total
from benchmarks.accuracy.judge import Judged, Truth
from benchmarks.accuracy.observe import Observed, Said
from benchmarks.accuracy.plan import Spec
from benchmarks.accuracy.tables import matrix, table

SPEC = Spec("single", "x", "chat", 100, (), 60.0, 130.0)
LOAD = Truth("context_length_skew", "load", frozenset({3}), 1.0, "metrics")
YES = Said("load", "context_length_skew", (3,), 0.9, 0.9, "ticket")


def test_each_goal_is_a_line_and_its_section_follows():
    """The summary comes first, with must and measured; a goal without a section has none."""
    made = [goals.Goal("G5", "misblame", ".005", "0.1"), goals.Goal("G8", "recall", ".9", "1", "details")]
    text = document.document("about", made, [("More", "rest")])
    assert "| G5 | misblame | .005 | 0.1 |" in text
    assert text.index("| G8 ") < text.index("## Faults that were there from the start\n\ndetails") < text.index("## More\n\nrest")


def test_what_was_written_by_hand_stays():
    """Everything behind the mark survives; without a mark the document is all generated."""
    assert document.renewed("new\n", f"old\n{document.OURS}\n\nby hand\n") == f"new\n\n{document.OURS}\n\nby hand\n"
    assert document.renewed("new\n", "old\n") == "new\n"


def test_the_ablation_compares_the_same_runs():
    """A run that was not asked without signals is in no row; one that turned wrong and sure is counted."""
    wrong = Said("single-point", "slow_rank", (3,), 0.9, 0.9, "page")
    asked = Judged(SPEC, (LOAD,), Observed(YES, 1.3, frozenset(), no_past=YES, ablated={"no sync wait": wrong}))
    text = document.ablation_section([asked, Judged(SPEC, (LOAD,), Observed(YES, 1.3, frozenset()))])
    row = next(line for line in text.splitlines() if line.startswith("| no sync wait"))
    assert row.endswith("| 1 |")
    assert next(line for line in text.splitlines() if line.startswith("| everything")).endswith("| 0 |")
    assert " of 1 |" in row


def test_rank_days_add_up_and_rates_are_per_rank_day():
    """Two parts of half a rank-day with one page between them: one a rank-day."""
    one, two = Alarms("chat", 0.5, 10), Alarms("rag", 0.5, 20)
    two.confirmed_pages["slow_rank"] += 1
    assert (total([one, two]).rank_days, total([one, two]).windows) == (1.0, 30)
    assert goals.alarms([one, two])[0].measured.startswith("1 [")


def test_a_cell_with_a_bar_stays_one_cell():
    """Text from outside does not break a table."""
    assert table(["a"], [["x|y"]]).splitlines()[-1] == "| x\\|y |"
    assert matrix({("load", "healthy"): 2, ("card", "load"): 1}, "injected").splitlines()[-1] == "| card | . | 1 |"
