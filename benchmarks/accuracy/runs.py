"""Makes labelled captures, or finds them made: in virtual time, or with real processes on the virtual device.

A capture and its label file lie in a folder of the cache, named after the run and the workload's own code: whatever of the two changes
makes the run anew.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import threading
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import msgspec

import workload
from benchmarks.accuracy.plan import Spec
from collector.capture import CaptureWriter
from collector.scrape import parse_target, scrape
from workload.cluster import Cluster
from workload.config import ClusterConfig
from workload.run import play
from workload.schedule import check
from workload.virtual_time.recording import Recording
from workload.virtual_time.simulate import simulate

METRICS_EVERY = 1.0
"""s between pages of a capture: what is looked at leaves out as many as its reader would not have asked for."""


@dataclass(frozen=True, slots=True)
class Made:
    """Where a run's capture and labels are, and when its fault begins, in seconds after the first page (0: it was there from the start)."""

    capture: Path
    labels: Path
    onset: float


class RefusedError(Exception):
    """The run cannot be made in this way; says why."""


def make(spec: Spec, folder: Path) -> Made:
    """The run's capture, made unless the cache holds it. Several processes may ask for the same. Raises RefusedError."""
    key = repr((spec.config(), spec.schedule, spec.length, spec.real, METRICS_EVERY, _code()))
    place = folder / hashlib.sha256(key.encode()).hexdigest()[:20]
    made = Made(place / "capture", place / "labels", spec.onset)
    if place.exists():
        return made
    growing = place.with_suffix(f".{os.getpid()}")
    shutil.rmtree(growing, ignore_errors=True)
    growing.mkdir(parents=True)
    config = msgspec.structs.replace(spec.config(), labels=growing / "labels")
    try:
        check(spec.schedule, config)
        (_virtual if spec.real is None else _live)(spec, config, growing / "capture")
    except ValueError as error:
        shutil.rmtree(growing)
        raise RefusedError(str(error)) from None
    try:
        growing.rename(place)
    except OSError:  # another process was quicker; the same arguments make the same capture
        shutil.rmtree(growing)
    return made


def recorded(folder: Path, onset: float) -> list[Made]:
    """Runs that were recorded elsewhere: the folder is the cache of a `--real-time N --device cuda` on a machine with GPUs."""
    return [Made(p, p.with_name("labels"), onset) for p in sorted(folder.glob("*/capture")) if p.with_name("labels").exists()]


def _virtual(spec: Spec, config: ClusterConfig, path: Path) -> None:
    with Recording(path) as recording:
        simulate(config, spec.schedule, spec.length, recording, metrics_every=METRICS_EVERY, cards=recording.cards)


def _live(spec: Spec, config: ClusterConfig, path: Path) -> None:
    with Cluster(config) as cluster, CaptureWriter(path, created=time.time()) as writer:
        asyncio.run(_scrape(cluster, spec, writer))


async def _scrape(cluster: Cluster, spec: Spec, writer: CaptureWriter) -> None:
    stop = asyncio.Event()
    reading = asyncio.create_task(scrape([parse_target(cluster.url)], writer.write, stop=stop))
    try:
        await asyncio.to_thread(play, cluster, spec.schedule, threading.Event(), lambda _: None, spec.length)
    finally:
        stop.set()
        await reading


@cache
def _code() -> str:
    """A digest of the workload's source."""
    digest = hashlib.sha256()
    for path in sorted(Path(workload.__path__[0]).rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()
