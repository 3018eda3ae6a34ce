"""The running service: one configuration in force, its engines under watch, its incidents, and what there is to say about itself."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.metadata import version

import structlog

from collector import exported
from collector.errors import ConfigError
from collector.exporter import Exporter, Part, Sample
from collector.model import Problem
from slowrank.discovery.listing import Listing
from slowrank.discovery.spec import EngineSpec
from slowrank.service import samples
from slowrank.service.fleet import Fleet
from slowrank.service.keepsakes import Keepsakes
from slowrank.service.office import Office
from slowrank.service.plan import Plan
from slowrank.service.watch import Watch

log = structlog.get_logger(__name__)

TICK = 5.0
"""s between two looks at what is listed and at incidents that grow old: a sixtieth of the time after which silence is told."""

ALIVE = 60.0
"""s without a sign of life after which the service says that it hangs: several verdicts, even on a crowded machine."""

FIXED = ("listen", "incidents", "log_format", "log_level")
"""Keys of [service] that a reload cannot change."""


class Service:
    """Made with a plan that was checked. Owned by one event loop."""

    def __init__(self, plan: Plan) -> None:
        """ConfigError or sqlite3.Error when the incident file cannot be used."""
        self.plan = plan
        self.started = time.time()
        self.reloads = {"ok": 0, "refused": 0}
        self.refused: str | None = None  # why the last reload was, if it was
        self._beat = time.monotonic()
        self._changed = asyncio.Event()
        self._listed: tuple[Problem, ...] = ()
        self._reconciled = False
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="diagnose")  # one: diagnoses must not take the core that pages need
        self.office = Office(plan.incidents, plan.receivers, plan.routes, plan.config.service.external_url, self._labels)
        self.keepsakes = Keepsakes(plan.incidents.with_name(plan.incidents.name + ".past"))
        self.keepsakes.sweep()
        self.fleet = Fleet(self._watch, self._left)
        self._listing = Listing(plan.engines, plan.sources, self._changed.set, shard=plan.shard)
        self.exporter = Exporter(self._parts)

    async def run(self) -> None:
        """Until cancelled; then everything is written and closed."""
        self.office.open()
        self._listing.open()
        try:
            while True:
                self._changed.clear()
                await self._turn()
                self._beat = time.monotonic()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(TICK):
                        await self._changed.wait()
        finally:
            await self._listing.close()
            await self.fleet.close()
            await self.office.close()
            self._worker.shutdown(cancel_futures=True)

    async def _turn(self) -> None:
        specs, self._listed = self._listing.engines()
        await self.fleet.reconcile(specs, self.office.engines(), sure=self._listing.sure)
        self._reconciled = self._listing.looked
        self.office.desk.age(time.time())

    async def reload(self, make: Callable[[], Plan]) -> bool:
        """Put another configuration in force, or keep this one if `make` refuses or it cannot be done. Whether it was."""
        try:
            plan = make()
            why = await self.office.refit(plan.receivers, plan.routes, plan.config.service.external_url)
        except ConfigError as error:
            why = str(error)
        if why is not None:
            self.reloads["refused"] += 1
            self.refused = why
            log.error("the new configuration is refused, the old one stays in force", why=why)
            return False
        before, self.plan = self.plan, plan
        for key in FIXED:
            if getattr(before.config.service, key) != getattr(plan.config.service, key):
                log.warning("a changed key needs a restart", key=f"service.{key}")
        await self._listing.close()
        self._listing = Listing(plan.engines, plan.sources, self._changed.set, shard=plan.shard)
        self._listing.open()
        if (before.config.scrape, before.config.diagnosis) != (plan.config.scrape, plan.config.diagnosis):
            await self.fleet.restart()
        self.reloads["ok"] += 1
        self.refused = None
        self._changed.set()
        log.info("the new configuration is in force", engines=len(plan.engines), lists=len(plan.sources))
        return True

    def _watch(self, spec: EngineSpec) -> Watch:
        config = self.plan.config
        return Watch(spec, config.scrape, config.diagnosis, self.office.hear, self.fleet.windows, self._worker, self.keepsakes)

    def _labels(self, engine: str) -> tuple[tuple[str, str], ...]:
        watch = self.fleet.find(engine)
        return () if watch is None else watch.spec.labels

    def _left(self, engine: str) -> None:
        self.office.desk.leave(engine, time.time())
        self.keepsakes.drop(engine)

    def problems(self) -> tuple[Problem, ...]:
        """What is wrong now with lists, the incident file, receivers and the last reload; not with engines, which say it themselves."""
        refused = () if self.refused is None else (Problem("reload", self.refused, "the configuration before stays in force"),)
        return (*self._listed, *self.office.problems(), *self.keepsakes.problems(), *refused)

    def unready(self) -> str | None:
        """Why answers would be empty yet; None when they are not: every list was looked at, and every engine asked for a page."""
        if not self._reconciled:
            return "not every list of targets was looked at yet"
        waiting = [w.spec.name for w in self.fleet.watches if not w.counts.pages]
        return f"{len(waiting)} engines were not asked for a page yet" if waiting else None

    def hung(self) -> str | None:
        """What shows no sign of life, or None."""
        now = time.monotonic()
        if now - self._beat > ALIVE:
            return f"the service did not turn for {now - self._beat:.0f} s"
        limit = ALIVE + 2 * self.plan.config.diagnosis.every
        stuck = [w.spec.name for w in self.fleet.watches if now - w.beat > limit]
        return f"{len(stuck)} engines were not judged for {limit:.0f} s" if stuck else None

    def _parts(self) -> Iterator[tuple[str, Part]]:
        """Of our own page: one for each engine."""
        for watch in self.fleet.watches:
            yield "engines", partial(samples.of_engine, watch, time.time())
        yield "engines", lambda: samples.of_rules(self.fleet.watches)
        yield "service", self._of_service

    def _of_service(self) -> Iterator[Sample]:
        yield from samples.of_process()
        yield Sample(exported.BUILD, 1.0, (version("slowrank"),))
        yield Sample(exported.SCRAPE_BUDGET, self.plan.config.scrape.budget)
        for outcome, count in self.reloads.items():
            yield Sample(exported.RELOADS, count, (outcome,))
        for engine, count in self.fleet.breakages.items():
            yield Sample(exported.BREAKAGES, count, (engine,))
        yield from samples.of_office(self.office)
        where: dict[str, int] = {}
        for problem in self.problems():
            where[problem.where] = where.get(problem.where, 0) + 1
        for name, count in where.items():
            yield Sample(exported.PROBLEMS, count, (name,))
