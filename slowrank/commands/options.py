"""Options that several commands share, so that they read the same everywhere."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

import typer

from slowrank.durations import parse_duration

if TYPE_CHECKING:
    from collector.model import Clock

TIME = "TIME"
KEY = typer.Option("--api-key-env", metavar="NAME", help="Environment variable that holds the engine's API key.")
HARDWARE = typer.Option(
    "--hardware",
    metavar="URL",
    help="dcgm-exporter page of a node of the engine (host:9400), for evidence from its cards; repeat it per node.",
)
PROCFS = typer.Option("--procfs", help="Read this node's /proc too: is a rank's process kept from running? Run on the ranks' node.")
NVML = typer.Option("--nvml", help="Read this node's NVIDIA driver too, where there is no dcgm-exporter (needs slowrank[nvml]).")
GPUS = typer.Option(
    "--gpus", metavar="RANK=GPU,...", help="Which card is whose, where it does not follow from their order: 0=0,1=1 or 8=node1/0."
)


class Format(StrEnum):
    """How a result is written."""

    TEXT = "text"
    JSON = "json"


class ClockOption(StrEnum):
    """What a person says of a vLLM engine's ranks."""

    AUTO = "auto"
    LOCKSTEP = "lockstep"
    INDEPENDENT = "independent"

    @property
    def clock(self) -> Clock | None:
        """The clock that is meant; None: look for yourself."""
        from collector.model import Clock

        return {"auto": None, "lockstep": Clock.FORWARD, "independent": Clock.NONE}[self.value]


class ReportFormat(StrEnum):
    """How a diagnosis is written."""

    TEXT = "text"
    JSON = "json"
    MARKDOWN = "markdown"
    HTML = "html"


def parse_time(text: str | float) -> float:
    """`parse_duration` as an option's parser: a wrong value is a usage error. A default comes in as the number that it is."""
    if isinstance(text, float):
        return text
    try:
        return parse_duration(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
