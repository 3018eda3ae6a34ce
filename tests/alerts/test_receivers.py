"""What each receiver is sent, and what its answers mean."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from collector.errors import ConfigError
from diagnose.alerts.alertmanager import HOLD, Alertmanager
from diagnose.alerts.notification import Notification, Status
from diagnose.alerts.pagerduty import PagerDuty
from diagnose.alerts.receiver import Again, Delivered, Gone, Refused, judge, retry_after
from diagnose.alerts.secret import Secret
from diagnose.alerts.slack import Slack, escape
from diagnose.alerts.webhook import Webhook, key_bytes, sign
from diagnose.model import Class, Severity

NOW = 1_000_100.0
HOSTILE = "<!channel> <http://evil|click> *b* & \x1b[31m\u202e\n\r\0" + "x" * 5000
KEY = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def body(receiver, notification, now=NOW):
    return json.loads(receiver.post(notification, now).body)


def test_the_published_vector_of_standard_webhooks():
    """The signature of the reference implementations' own test."""
    made = sign(key_bytes(Secret(KEY), "w"), "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}')
    assert made == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_a_webhook_is_signed_over_what_is_sent(notice):
    """Id by incident and version, the time of the try, a signature over the very bytes of the body."""
    post = Webhook.at("w", "https://h/x", Secret(KEY)).post(notice(version=4), NOW)
    assert post.headers["webhook-id"] == "msg_0123456789abcdef_4"
    assert post.headers["webhook-timestamp"] == "1000100"
    assert post.headers["webhook-signature"] == sign(key_bytes(Secret(KEY), "w"), "msg_0123456789abcdef_4", 1000100, post.body)


def test_a_webhook_without_a_key_is_not_signed(notice):
    """No signature rather than one that proves nothing."""
    assert "webhook-signature" not in Webhook.at("w", "https://h/x").post(notice(), NOW).headers


@pytest.mark.parametrize("key", ["", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_", "whsec_!!!", "whsec_c2hvcnQ="])
def test_a_wrong_key_is_refused_without_showing_it(key):
    """Missing prefix, no base64, too short; the error does not hold the key."""
    with pytest.raises(ConfigError) as error:
        Webhook.at("w", "https://h/x", Secret(key))
    assert key.removeprefix("whsec_") == "" or key not in str(error.value)


def test_a_webhook_has_alertmanagers_body(notice):
    """The keys of its version 4; an alert that fires ends at Go's zero time."""
    sent = body(Webhook.at("w", "https://h/x"), notice())
    keys = {
        "version",
        "groupKey",
        "truncatedAlerts",
        "status",
        "receiver",
        "groupLabels",
        "commonLabels",
        "commonAnnotations",
        "externalURL",
    }
    assert set(sent) == keys | {"alerts"}
    (alert,) = sent["alerts"]
    assert (sent["version"], sent["status"], alert["status"]) == ("4", "firing", "firing")
    assert set(alert) == {"status", "labels", "annotations", "startsAt", "endsAt", "generatorURL", "fingerprint"}
    assert alert["fingerprint"] == "0123456789abcdef"
    assert alert["startsAt"] == "1970-01-12T13:46:20.000Z"
    assert alert["endsAt"] == "0001-01-01T00:00:00Z"
    over = body(Webhook.at("w", "https://h/x"), notice(status=Status.RESOLVED, ended=1_000_060.0))["alerts"][0]
    assert (over["status"], over["endsAt"]) == ("resolved", "1970-01-12T13:47:40.000Z")


def test_alertmanager_holds_an_alert_longer_than_the_outage_that_it_must_survive(notice):
    """endsAt of one that fires lies HOLD ahead: ten minutes of outage, a minute of back-off, a minute between tellings fit in."""
    (alert,) = body(Alertmanager.at("a", "http://h:9093/"), notice())
    assert HOLD > 600 + 60 + 60
    assert (alert["startsAt"], alert["endsAt"]) == ("1970-01-12T13:46:40.000Z", "1970-01-12T14:03:20.000Z")
    assert "generatorURL" not in alert


@pytest.mark.parametrize("now", [NOW, 900_000.0], ids=["in order", "the clock was set back"])
def test_alertmanager_never_gets_an_end_before_the_start_or_ahead(notice, now):
    """It refuses the first, and takes the second for an alert that fires."""
    (alert,) = body(Alertmanager.at("a", "http://h:9093"), notice(status=Status.RESOLVED, ended=1_000_050.0), now)
    assert alert["startsAt"] <= alert["endsAt"]
    assert alert["endsAt"] == {NOW: "1970-01-12T13:47:30.000Z", 900_000.0: "1970-01-11T10:00:00.000Z"}[now]


def test_a_risen_severity_ends_the_alert_under_the_old_one(notice):
    """Alertmanager compares labels: the old set is ended in the same post, so that one alert is on."""
    sent = body(Alertmanager.at("a", "http://h:9093"), notice(formerly=(Severity.TICKET,)))
    ends = {alert["labels"]["severity"]: alert["endsAt"] for alert in sent}
    assert ends == {"page": "1970-01-12T14:03:20.000Z", "ticket": "1970-01-12T13:48:20.000Z"}


@pytest.mark.parametrize("url", ["http://h:9093", "http://h:9093/", "http://h:9093/api/v2/alerts"])
def test_alertmanager_is_named_by_its_base_or_its_api(url):
    """People write either."""
    assert Alertmanager.at("a", url).url.reveal() == "http://h:9093/api/v2/alerts"


@pytest.mark.parametrize("url", ["h:9093", "ftp://h/x", "", "http://", "http://h:99999/", "http://[x/"])
def test_what_is_no_address_is_refused(url):
    """With what was seen and how to write it."""
    with pytest.raises(ConfigError, match="write it as https://host/path"):
        Alertmanager.at("a", url)


def test_pagerduty_triggers_and_resolves_one_incident(notice):
    """Events v2: the incident's id is the dedup_key of both; a page is critical, a ticket a warning."""
    to = PagerDuty.with_key("p", Secret("R0UT1NGKEY"))
    fired, over = body(to, notice()), body(to, notice(status=Status.RESOLVED, ended=NOW))
    assert (fired["event_action"], over["event_action"]) == ("trigger", "resolve")
    assert fired["dedup_key"] == over["dedup_key"] == "0123456789abcdef"
    assert fired["routing_key"] == "R0UT1NGKEY"
    assert (fired["payload"]["severity"], fired["payload"]["source"]) == ("critical", "http://host:30000")
    assert body(to, notice(severity=Severity.TICKET))["payload"]["severity"] == "warning"
    assert fired["payload"]["custom_details"]["lost_time_share"] == "0.200"
    assert "client_url" not in fired
    assert body(to, notice(link="https://s/incidents/1"))["links"][0]["href"] == "https://s/incidents/1"


def texts(blocks):
    for block in blocks:
        for part in (block.get("text"), *block.get("elements", ())):
            if part:
                yield part


def test_slack_takes_hostile_names_as_text(notice):
    """No mention, no link, no control character; within the lengths that Slack takes."""
    to = Slack.at("s", Secret("https://hooks.slack.com/services/T/B/X"))
    sent = body(to, notice(engine=HOSTILE, summary=HOSTILE, cause=HOSTILE, remedy=HOSTILE))
    marked = [part for part in texts(sent["blocks"]) if part["type"] == "mrkdwn"]
    assert len(marked) == 2
    for part in marked:
        assert "<" not in part["text"]
        assert "\n" not in part["text"]
        assert part["verbatim"] is True
        assert len(part["text"]) <= 3000
    header = sent["blocks"][0]["text"]
    assert header["type"] == "plain_text"
    assert len(header["text"]) <= 150
    assert not any(ord(char) < 32 or char == "\u202e" for part in texts(sent["blocks"]) for char in part["text"])


def test_slack_escapes_its_three_characters_and_cuts_none_in_two():
    """As its reference asks; a cut falls before an escape, never inside."""
    assert escape("a<b>&c") == "a&lt;b&gt;&amp;c"
    assert escape("&&", 8) == "&amp;"


@pytest.mark.parametrize(
    "to",
    [
        Alertmanager.at("a", "http://h"),
        Webhook.at("w", "http://h"),
        PagerDuty.with_key("p", Secret("K")),
        Slack.at("s", Secret("http://h")),
    ],
    ids=lambda to: to.name,
)
def test_hostile_text_reaches_no_receiver_raw(notice, to):
    """Control characters and bidi overrides are spelled out everywhere."""
    found = list(strings(body(to, notice(engine=HOSTILE, summary=HOSTILE, update=HOSTILE))))
    assert any("\\x1b" in text for text in found)
    assert not any(ord(char) < 32 or char == "\u202e" for text in found for char in text)


def strings(value):
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from strings(item)


@pytest.mark.parametrize(
    "to",
    [
        Webhook.at("w", "http://h/T0P", Secret(KEY)),
        PagerDuty.with_key("p", Secret("T0P")),
        Slack.at("s", Secret("http://h/T0P")),
        Secret("T0P"),
    ],
)
def test_a_secret_is_not_in_a_repr(to):
    """Neither key nor address."""
    assert "T0P" not in repr(to)
    assert KEY not in repr(to)
    assert "T0P" not in f"{to}"


def test_identity_holds_no_number_that_changes(notice):
    """Share, confidence and ranks of now may change without making another alert; the labels stay."""
    then: Notification = notice()
    now = replace(then, share=0.3, peak_share=0.3, confidence=0.5, ranks=(3, 4), cause="host_cpu_starved", summary="x", version=7)
    assert now.labels() == then.labels()
    assert then.labels() == {
        "alertname": "slowrank_slow_rank",
        "class": "single-point",
        "engine": "http://host:30000",
        "incident": "0123456789abcdef",
        "rank": "3",
        "severity": "page",
    }


def test_the_rank_of_a_load_is_no_identity(notice):
    """Where a load shows moves by itself."""
    assert "rank" not in notice(klass=Class.LOAD).labels()


@pytest.mark.parametrize(
    ("status", "headers", "kind"),
    [
        (200, {}, Delivered),
        (202, {}, Delivered),
        (302, {}, Again),
        (400, {}, Refused),
        (401, {}, Again),
        (403, {}, Again),
        (404, {}, Again),
        (408, {}, Again),
        (410, {}, Gone),
        (413, {}, Refused),
        (422, {}, Refused),
        (429, {"retry-after": "7"}, Again),
        (500, {}, Again),
        (503, {}, Again),
    ],
)
def test_what_an_answer_means(status, headers, kind):
    """The message is refused, the receiver is gone, or it is tried again; with the host and the code in the reason."""
    found = judge(status, headers, "", NOW, "h")
    assert type(found) is kind
    assert isinstance(found, Delivered) or found.why == f"h answered {status}"
    if status == 429:
        assert found == Again("h answered 429", 7.0)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("0", 0.0),
        ("120", 120.0),
        ("99999999", 3600.0),
        ("Mon, 12 Jan 1970 13:49:20 GMT", 60.0),  # NOW is 13:48:20
        ("Mon, 12 Jan 1970 13:00:00 GMT", 0.0),
        ("", None),
        ("soon", None),
        ("-5", None),
        ("1e3", None),
        ("٣", None),
        ("Mon, 99 Jan 1970 13:49:20 GMT", None),
    ],
)
def test_retry_after(value, seconds):
    """Seconds or a date, at most an hour; nonsense is no wish."""
    assert retry_after(value, NOW) == seconds


def test_secrets_come_from_the_environment_or_a_file(tmp_path, monkeypatch):
    """A missing one is an error that names where it was looked for."""
    monkeypatch.setenv("SLOWRANK_TEST_KEY", " k1 ")
    assert Secret.from_env("SLOWRANK_TEST_KEY") == Secret("k1")
    (tmp_path / "k").write_text("k2\nignored\n")
    assert Secret.from_file(tmp_path / "k") == Secret("k2")
    (tmp_path / "empty").write_text("\n")
    for make in (
        lambda: Secret.from_env("SLOWRANK_NO_SUCH"),
        lambda: Secret.from_file(tmp_path / "no"),
        lambda: Secret.from_file(tmp_path / "empty"),
    ):
        with pytest.raises(ConfigError, match=r"SLOWRANK_NO_SUCH|/no:|/empty:"):
            make()
