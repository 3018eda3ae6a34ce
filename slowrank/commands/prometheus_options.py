"""Options of a reading out of Prometheus."""

from __future__ import annotations

import typer

from slowrank.commands.options import TIME, parse_time

_PANEL = "Out of Prometheus"

URL = typer.Option(
    "--prometheus",
    metavar="URL",
    help="Read the past of all engines that a Prometheus, Thanos, Mimir or VictoriaMetrics knows, instead of a live TARGET.",
    rich_help_panel=_PANEL,
)
AT = typer.Option(
    "--at",
    metavar="TIME",
    help="End of the span: 2026-05-01T12:30:00Z, or unix seconds. Now if not given.",
    rich_help_panel=_PANEL,
)
SINCE = typer.Option(
    "--since", parser=parse_time, metavar=TIME, help="Length of the span before --at; 5m if not given.", rich_help_panel=_PANEL
)
MATCH = typer.Option(
    "--match",
    metavar="MATCHER",
    help="""Only series with such labels: 'cluster="a"'; repeat it to narrow further.""",
    rich_help_panel=_PANEL,
)
TOKEN_ENV = typer.Option("--token-env", metavar="NAME", help="Environment variable with the server's bearer token.", rich_help_panel=_PANEL)
TOKEN_FILE = typer.Option("--token-file", metavar="FILE", help="File with the server's bearer token.", rich_help_panel=_PANEL)
CA_FILE = typer.Option("--ca-file", metavar="FILE", help="PEM certificates to trust the server by.", rich_help_panel=_PANEL)
CERT_FILE = typer.Option("--cert-file", metavar="FILE", help="PEM certificate that we show to the server.", rich_help_panel=_PANEL)
KEY_FILE = typer.Option("--key-file", metavar="FILE", help="Its key, if it is in a file of its own.", rich_help_panel=_PANEL)
