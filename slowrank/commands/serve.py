"""`slowrank serve` and `slowrank config`: the sidecar, and what it would do."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from slowrank.terminal import say

if TYPE_CHECKING:
    from slowrank.config.load import Loaded
    from slowrank.service.plan import Plan

FILE = typer.Option("--config", metavar="FILE", help="The configuration (TOML), docs/sidecar.md.")
TARGETS = typer.Argument(metavar="TARGET", help="Engines beside those of the file: URL or host:port; a comma joins the nodes of one.")

SHARD = typer.Option("--shard", metavar="I/N", help="Of all engines watch those of shard I (from 0) of N alone, docs/scaling.md.")


def serve(
    targets: Annotated[list[str] | None, TARGETS] = None,
    config: Annotated[Path | None, FILE] = None,
    shard: Annotated[str | None, SHARD] = None,
    check: Annotated[bool, typer.Option("--check", help="Only say whether the configuration can be put in force.")] = False,
) -> None:
    """Watch engines: read, diagnose, keep incidents, send alerts, serve pages, an API and /metrics.

    SIGHUP reads the configuration again and keeps the old one if the new one is bad; SIGTERM ends it. Keys of the tables service, scrape
    and diagnosis can be set by the environment: SLOWRANK_SERVICE__LISTEN.

    Exit codes: 0 ended by a signal, 2 usage or configuration.
    """
    from slowrank.service.plan import prepare

    def make() -> Plan:
        return prepare(_load(config, targets, shard))

    if check:
        plan = make()
        say(f"the configuration is good: {len(plan.engines)} engines, {len(plan.sources)} lists, {len(plan.receivers)} receivers")
        return
    from slowrank.service.run import run

    run(make)


def config(
    targets: Annotated[list[str] | None, TARGETS] = None,
    config: Annotated[Path | None, FILE] = None,
    shard: Annotated[str | None, SHARD] = None,
) -> None:
    """Print the effective configuration, each value with where it comes from: default, file, or the environment.

    Exit codes: 0 printed, 2 the configuration is wrong.
    """
    from slowrank.config.show import show

    say("\n".join(show(_load(config, targets, shard))))


def _load(file: Path | None, targets: list[str] | None, shard: str | None) -> Loaded:
    from slowrank.config.load import load

    return load(None if file is None else file.expanduser(), os.environ, targets or [], shard)
