"""`slowrank alert test`: do alerts arrive where people look?"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from collector.errors import ConfigError
from slowrank.commands.options import TIME, parse_time
from slowrank.terminal import say

if TYPE_CHECKING:
    from diagnose.alerts.receiver import Receiver

alert = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Send a test alert to the receivers of alerts.")


class Loudness(StrEnum):
    """The severities of alerts."""

    PAGE = "page"
    TICKET = "ticket"
    NOTE = "note"


@alert.callback()
def _alert() -> None:
    """Keeps `test` a command of its own."""


@alert.command("test")
def try_out(
    alertmanager: Annotated[list[str] | None, typer.Option(metavar="URL", help="An Alertmanager's address; repeatable.")] = None,
    webhook: Annotated[str | None, typer.Option(metavar="URL", help="A webhook that takes Alertmanager's body.")] = None,
    webhook_key_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Holds the whsec_ key that signs for the webhook (Standard Webhooks).")
    ] = None,
    slack_url_file: Annotated[Path | None, typer.Option(metavar="FILE", help="Holds the address of a Slack incoming webhook.")] = None,
    pagerduty_key_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Holds the routing key of a PagerDuty Events API v2 integration.")
    ] = None,
    pagerduty_url: Annotated[str | None, typer.Option(metavar="URL", help="Another region's events address.")] = None,
    severity: Annotated[Loudness, typer.Option(help="What the test alert claims to be; page wakes people.")] = Loudness.NOTE,
    seconds: Annotated[
        float,
        typer.Option(
            "--for",
            parser=parse_time,
            metavar=TIME,
            show_default="1s",
            help="How long it is on. Alertmanager passes on nothing that ends within its group_wait (30 s unless set).",
        ),
    ] = 1.0,
) -> None:
    """Send an alert that fires and ends, and print what each receiver answered.

    Secrets come from files, never from the command line, where every user of the machine could read them.

    Exit codes: 0 every receiver took both messages, 1 one did not, 2 usage or configuration.
    """
    from diagnose.model import Severity
    from slowrank.alerting import play

    if webhook_key_file is not None and webhook is None:
        raise ConfigError(f"--webhook-key-file {webhook_key_file}: signs for a webhook; add --webhook URL")
    if pagerduty_url is not None and pagerduty_key_file is None:
        raise ConfigError(f"--pagerduty-url {pagerduty_url}: needs a key; add --pagerduty-key-file FILE")
    receivers = [
        *_alertmanagers(alertmanager or []),
        *_webhook(webhook, webhook_key_file),
        *_slack(slack_url_file),
        *_pagerduty(pagerduty_key_file, pagerduty_url),
    ]
    if not receivers:
        raise ConfigError("no receiver is given; add --alertmanager URL, --webhook URL, --slack-url-file FILE or --pagerduty-key-file FILE")
    took = play(receivers, Severity(severity.value), seconds, say)
    raise typer.Exit(0 if took else 1)


def _alertmanagers(urls: list[str]) -> list[Receiver]:
    from diagnose.alerts.alertmanager import Alertmanager

    return [Alertmanager.at("alertmanager" if n == 0 else f"alertmanager-{n + 1}", url) for n, url in enumerate(urls)]


def _webhook(url: str | None, key: Path | None) -> list[Receiver]:
    from diagnose.alerts.secret import Secret
    from diagnose.alerts.webhook import Webhook

    return [] if url is None else [Webhook.at("webhook", url, None if key is None else Secret.from_file(key))]


def _slack(url: Path | None) -> list[Receiver]:
    from diagnose.alerts.secret import Secret
    from diagnose.alerts.slack import Slack

    return [] if url is None else [Slack.at("slack", Secret.from_file(url))]


def _pagerduty(key: Path | None, url: str | None) -> list[Receiver]:
    from diagnose.alerts.pagerduty import ENDPOINT, PagerDuty
    from diagnose.alerts.secret import Secret

    return [] if key is None else [PagerDuty.with_key("pagerduty", Secret.from_file(key), url or ENDPOINT)]
