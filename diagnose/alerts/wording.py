"""The words of a notification, in plain text: a title and one paragraph. Pure. Receivers escape it for their own markup."""

from __future__ import annotations

from datetime import UTC, datetime

from diagnose.alerts.notification import Notification
from diagnose.report.plain import percent, prose, safe, utc

TITLE = 140
"""Characters: Slack's header takes 150, which leaves room for its escapes."""


def title(notification: Notification) -> str:
    """Cause, ranks and engine, on one line."""
    start = "" if notification.firing else "Resolved: "
    cost = "" if notification.share is None or not notification.firing else f", {percent(notification.share)} of step time"
    return safe(f"{start}{notification.cause}, {_who(notification)}{cost}, on {safe(notification.engine, 80)}", TITLE)


def body(notification: Notification) -> str:
    """What is wrong, how sure that is, what changed, and what to do."""
    n = notification
    parts = [n.summary]
    if n.firing:
        cost = "" if n.share is None else f", {percent(n.share)} of step time"
        parts.append(f"{n.klass.value}, {_who(n)}{cost}, confidence {n.confidence:.0%}")
        parts.append(n.update)
        parts.append("" if n.silent_since is None else f"No data since {utc(n.silent_since)}, so it may be over")
        parts.append(f"What to do: {n.remedy}" if n.remedy else "")
        parts.append(f"Runbook: {n.runbook}")
    else:
        lasted = f"It was there for {_long(n.last_seen - n.started)}"
        peak = "" if n.peak_share is None else f" and cost {percent(n.peak_share)} of step time at most"
        parts.append(f"Over: {n.update}" if n.update else "Over")
        parts.append(lasted + peak)
    parts.append(n.link)
    return prose(" ".join(_sentence(part) for part in parts if part))


def details(notification: Notification) -> dict[str, str]:
    """All that is said of an alert, by name: Alertmanager's annotations, PagerDuty's custom details. Every number is here."""
    n = notification
    said = {
        "summary": title(n),
        "description": body(n),
        "cause": safe(n.cause, 80),
        "ranks": ",".join(map(str, n.ranks)),
        "confidence": f"{n.confidence:.2f}",
        "remedy": prose(n.remedy, 1000),
        "runbook": n.runbook,
    }
    if n.share is not None:
        said["lost_time_share"] = f"{n.share:.3f}"
    return said


def rfc3339(seconds: float) -> str:
    """Unix seconds as Alertmanager and PagerDuty write them."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _who(notification: Notification) -> str:
    ranks = notification.ranks
    if not ranks:
        return "no rank named"
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"


def _sentence(text: str) -> str:
    text = text.strip()
    return text if text.endswith((".", "!", "?")) or "://" in text.rsplit(" ", 1)[-1] else f"{text}."


def _long(seconds: float) -> str:
    if seconds < 120:
        return f"{max(0.0, seconds):.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"
