"""Foreign text, whatever it is: headers of answers, names in messages."""

from __future__ import annotations

import json
import unicodedata
from dataclasses import replace

import hypothesis.strategies as st
from hypothesis import example, given

from diagnose.alerts.alertmanager import Alertmanager
from diagnose.alerts.notification import Notification, Status
from diagnose.alerts.pagerduty import PagerDuty
from diagnose.alerts.receiver import LONGEST_PAUSE, retry_after
from diagnose.alerts.secret import Secret
from diagnose.alerts.slack import Slack, escape
from diagnose.alerts.webhook import Webhook
from diagnose.alerts.wording import TITLE, body, title
from diagnose.model import Class, Severity

RECEIVERS = (
    Alertmanager.at("a", "http://h"),
    Webhook.at("w", "http://h"),
    PagerDuty.with_key("p", Secret("K")),
    Slack.at("s", Secret("http://h")),
)
PLAIN = Notification(
    *("0123456789abcdef", 1, Status.FIRING, "e", Class.SINGLE_POINT, "c", (3,), Severity.PAGE, (), "c", (3,)),
    *(0.2, 0.3, 0.9, "s", "", "r", "b", "", 1e6, 1e6, 1e6),
)
anything = st.text(st.characters(), max_size=300)  # lone surrogates too


@given(anything, st.floats(0, 4e9))
@example("Mon, 01 Jan 0001 00:00:00 GMT", 0.0)
@example("Mon, 31 Dec 9999 23:59:59 -2359", 0.0)
@example("9" * 5000, 0.0)
def test_retry_after_takes_any_text(value, now):
    """Never an error, never negative, never more than an hour."""
    seconds = retry_after(value, now)
    assert seconds is None or 0.0 <= seconds <= LONGEST_PAUSE


@given(anything, st.integers(0, 400))
def test_slacks_escape_loses_nothing_but_the_end(text, limit):
    """Unescaped it is a beginning of the text; it fits; no bare markup is left."""
    shown = escape(text, limit)
    assert len(shown) <= limit
    assert "<" not in shown
    assert ">" not in shown
    assert text.startswith(shown.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))
    assert limit < 5 * len(text) or len(shown) >= len(text)


@given(anything, anything, anything, anything)
@example("", "\ud800", "", "")
def test_any_text_makes_a_message_for_every_receiver(engine, cause, summary, update):
    """UTF-8 that can be sent, with nothing that a terminal or a browser would obey, and a title that fits."""
    notice = replace(PLAIN, engine=engine, cause=cause, first_cause=cause, summary=summary, update=update)
    assert len(title(notice)) <= TITLE
    for text in (title(notice), body(notice)):
        assert not any(unicodedata.category(char) in {"Cc", "Cf", "Cs", "Zl", "Zp"} for char in text)
    for receiver in RECEIVERS:
        sent = receiver.post(notice, 1e6).body
        json.dumps(json.loads(sent), ensure_ascii=False).encode()  # a lone surrogate would raise
