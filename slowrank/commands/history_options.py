"""Options with which a command reads from Prometheus in place of engines."""

from __future__ import annotations

from pathlib import Path

import typer

from collector.errors import ConfigError
from slowrank.commands.options import TIME, parse_time
from slowrank.history import Question

_WITH = "With --prometheus: "

PROMETHEUS = typer.Option(metavar="URL", help="Read the engines that a Prometheus, Thanos, Mimir or VictoriaMetrics holds.")
AT = typer.Option(metavar="TIME", help=_WITH + "the end of what is read, as 2026-01-31T14:30:00Z; now if not given.")
SINCE = typer.Option(parser=parse_time, metavar=TIME, help=_WITH + "how much before that; 10m if not given.")
MATCH = typer.Option(metavar="MATCHERS", help=_WITH + 'only series with these labels: \'namespace="prod",pod=~"a.*"\'.')
TOKEN_ENV = typer.Option(metavar="NAME", help=_WITH + "environment variable that holds the bearer token.")
TOKEN_FILE = typer.Option(metavar="FILE", help=_WITH + "file that holds it.")
CA_FILE = typer.Option(metavar="FILE", help=_WITH + "certificates to trust.")
TENANT = typer.Option(metavar="ID", help=_WITH + "X-Scope-OrgID of Mimir or Cortex.")

CARD = typer.Option(
    metavar="NAME", help=_WITH + "the engines' cards, for example H200, if slowrank's own series do not say: what attention costs."
)


def question(
    url: str | None,
    at: str | None,
    since: float | None,
    match: str | None,
    token_env: str | None,
    token_file: Path | None,
    ca_file: Path | None,
    tenant: str | None,
    card: str | None,
) -> Question | None:
    """What the options ask; None without --prometheus. ConfigError for one of the others without it."""
    others = (at, since, match, token_env, token_file, ca_file, tenant, card)
    if url is not None:
        return Question(url, *others)
    names = ("--at", "--since", "--match", "--token-env", "--token-file", "--ca-file", "--tenant", "--card")
    if stray := [name for name, value in zip(names, others, strict=True) if value is not None]:
        raise ConfigError(f"{', '.join(stray)}: only with --prometheus URL")
    return None
