"""`slowrank demo`: see healthy ranks and one fault of each class told apart, on this machine, without a GPU."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from collector.errors import ConfigError
from slowrank.terminal import colour, say, tell, width

if TYPE_CHECKING:
    from slowrank.score import Score

FEWEST = 4
"""Below it two ranks are no majority against one, and "ambiguous" would be the right answer."""

BETWEEN = "=" * 40


def demo(
    ranks: Annotated[int, typer.Option(min=FEWEST, max=16, help="How many data-parallel ranks to run.")] = 8,
    seed: Annotated[int, typer.Option(help="Seed of the traffic.")] = 0,
    output: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write verdicts and injected truth to FILE.")] = None,
) -> None:
    """Run an engine here, slow a rank down in three ways, see each told apart.

    Takes about 70 s and no GPU. Exit codes: 0 all four answers right in class, cause and rank; 1 not.
    """
    from slowrank.demo import DEVICE, SIMULATED, play
    from slowrank.score import summary, to_document

    if output is not None and not output.absolute().parent.is_dir():  # told now, not after a minute
        raise ConfigError(f"--json {output}: there is no folder {output.absolute().parent}")
    scores = play(ranks, seed, _show, tell)
    say(f"{BETWEEN}\n\n{summary(scores)}\n\nThe device was {DEVICE}: {SIMULATED}.")
    if output is not None:
        output.write_text(json.dumps(to_document(scores, ranks=ranks, seed=seed, device=DEVICE), indent=2) + "\n", encoding="utf-8")
    raise typer.Exit(0 if all(score.right for score in scores) else 1)


def _show(score: Score) -> None:
    from diagnose.report.text import render

    report = render(score.diagnosis, colour=colour(sys.stdout), width=width())
    say(f"{BETWEEN}\ninjected: {score.truth} (the diagnosis is not told)\n\n{report}")
