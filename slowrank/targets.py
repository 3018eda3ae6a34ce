"""What the TARGET arguments mean: an existing file is a capture, everything else an address."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from collector.errors import CaptureError, ConfigError
from slowrank.durations import LONGEST

if TYPE_CHECKING:
    from collector.intake import Intake
    from collector.model import Clock, Window
    from collector.scrape import Target

SUFFIX = ".slowrank"


@dataclass(frozen=True, slots=True)
class Machines:
    """What is to be read of the machines beside the engine, as the options say."""

    pages: tuple[str, ...] = ()  # URLs of dcgm-exporter
    procfs: bool = False
    nvml: bool = False
    gpus: Mapping[int, tuple[str, ...]] = field(default_factory=dict)

    @property
    def wanted(self) -> bool:
        """Whether anything is to be read live."""
        return bool(self.pages) or self.procfs or self.nvml


NO_MACHINES = Machines()


def machines(pages: Sequence[str] | None, procfs: bool, nvml: bool, gpus: str | None) -> Machines:
    """The options of every command that reads. Raises ConfigError for a --gpus that says nothing clear."""
    from collector.hardware.join import parse_gpus

    return Machines(tuple(pages or ()), procfs, nvml, parse_gpus(gpus) if gpus is not None else {})


def split(texts: Sequence[str]) -> tuple[list[Path], list[str]]:
    """(capture files, addresses). ConfigError for what looks like a file and is none."""
    captures, addresses = [], []
    for text in texts:
        path = Path(text).expanduser()
        if "://" not in text and path.is_file():
            captures.append(path)
        elif "://" not in text and (path.suffix == SUFFIX or text.startswith(("/", "./", "../", "~"))):
            raise ConfigError(f"{text}: there is no such capture file")
        else:
            addresses.append(text)
    return captures, addresses


def parse(addresses: Sequence[str], key_name: str | None, machines: Machines = NO_MACHINES) -> list[Target]:
    """The engines to read. `key_name` is the environment variable that holds their key, `machines` what one of them runs on.

    A key is never taken from the command line, where every user of the machine could read it.
    """
    from collector.model import Source
    from collector.targets import parse_target, with_machines

    if machines.wanted and len(addresses) != 1:
        raise ConfigError(f"--hardware, --procfs and --nvml are of one engine's machines, {len(addresses)} are given; read them one by one")
    key = None
    if key_name is not None:
        key = os.environ.get(key_name)
        if not key:
            raise ConfigError(f"--api-key-env {key_name}: there is no such environment variable, or it is empty; export {key_name} first")
    found = [parse_target(address, key) for address in addresses]
    if machines.wanted:
        local = {Source.PROCFS: machines.procfs, Source.NVML: machines.nvml}
        found = [with_machines(target, machines.pages, frozenset(s for s, wanted in local.items() if wanted)) for target in found]
    names = [target.engine for target in found]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"{name} is given {names.count(name)} times; give each engine once")
    return found


def replay(
    path: Path, seconds: float | None, clock: Clock | None = None, gpus: Mapping[int, tuple[str, ...]] | None = None
) -> list[Window]:
    """The windows of a capture: of its last `seconds`, or of all of it. From here on a file and a live engine are the same thing."""
    from collector import capture
    from collector.intake import Intake

    if seconds is None:
        arrivals = [page.arrived for page in capture.read_capture(path)]
        seconds = max(arrivals, default=0.0) - min(arrivals, default=0.0) + 1.0
    intake = Intake(depth_s=min(seconds, LONGEST), clock=clock, gpus=gpus)  # a file's times are not to be trusted with our memory
    capture.replay(path, intake)
    if not intake.engines():
        raise CaptureError(f"{path}: holds no page at all; record again while the engine answers")
    return windows(intake, seconds)


def windows(intake: Intake, seconds: float | None = None, *, leave_out: Sequence[str] = ()) -> list[Window]:
    """The window of each engine: its last `seconds`, or everything that is held."""
    return [intake.window(engine, seconds) for engine in intake.engines() if engine not in leave_out]
