"""`slowrank incidents`: the table, the JSON, the codes."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from collector.errors import ConfigError
from diagnose.alerts.ledger import Batch, Ledger
from diagnose.incident_model import Event, Incident, Kind, State, Told
from diagnose.model import Class, Severity
from slowrank.app import app
from slowrank.incidents import parse_since

DAY = 86400.0
NOW = 1_700_000_000.0  # 2023-11-14 22:13:20 UTC


def incident(name="a", **changed) -> Incident:
    made = Incident(
        id=name,
        engine="http://e:30000",
        klass=Class.SINGLE_POINT,
        cause="slow_rank",
        ranks=(3,),
        state=State.CONFIRMED,
        opened=NOW,
        last_seen=NOW + 90.0,
        severity=Severity.PAGE,
        share=0.2,
        peak_share=0.25,
        confidence=0.9,
        summary="rank 3 is late",
        told=Told("slow_rank", (3,), Severity.PAGE, 0),
        judged=NOW,
        informed=NOW,
        agreed_until=NOW,
        confirmed=NOW + 20.0,
        events=(Event(Kind.OPENED, NOW, name, "rank 3 is late", notify=False),),
    )
    return replace(made, **changed)


@pytest.fixture
def run(tmp_path):
    def play(incidents, *arguments):
        ledger = Ledger(tmp_path / "i.db")
        ledger.write(Batch({i.id: i for i in incidents}), durable=False)
        ledger.close()
        return CliRunner().invoke(app, ["incidents", "--db", str(tmp_path / "i.db"), *arguments])

    return play


def test_the_table(run):
    """Newest first; what it was below; how long it lasted is without the cool-down."""
    began = NOW - 3 * 3600
    over = incident(
        "b", state=State.RESOLVED, opened=began, last_seen=began + 7200, closed=began + 7920, ranks=(), share=None, peak_share=None
    )
    done = run([incident(), over])
    assert done.output.splitlines() == [
        "state      severity  cause      ranks  now  peak  found                lasted  id  engine",
        "confirmed  page      slow_rank  3      20%  25%   2023-11-14 22:13:20  1m30s   a   http://e:30000",
        "    rank 3 is late",
        "closed     page      slow_rank  -      -    -     2023-11-14 19:13:20  2h00m   b   http://e:30000",
        "    rank 3 is late",
    ]
    assert done.exit_code == 1


@pytest.mark.parametrize(
    ("changed", "code"),
    [({}, 1), ({"state": State.SUSPECTED}, 0), ({"state": State.RESOLVED, "resolved": NOW}, 0), ({"closed": NOW}, 0)],
    ids=["confirmed", "suspected", "resolved", "closed"],
)
def test_a_confirmed_one_that_is_there_is_1(run, changed, code):
    """As a finding is for `diagnose`."""
    assert run([incident(**changed)]).exit_code == code


def test_none_is_0_and_said(run):
    """An empty history is no error."""
    done = run([])
    assert (done.exit_code, done.output) == (0, "no such incidents\n")


def test_the_json(run):
    """Everything, times in ISO 8601."""
    (made,) = json.loads(run([incident()], "--format", "json").output)["incidents"]
    assert (made["state"], made["class"], made["ranks"], made["opened"]) == ("confirmed", "single-point", [3], "2023-11-14T22:13:20.000Z")
    assert made["closed"] is None
    assert made["events"] == [{"kind": "opened", "at": "2023-11-14T22:13:20.000Z", "what": "rank 3 is late"}]


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ([], "cba"),
        (["--state", "open"], "ba"),
        (["--state", "closed"], "c"),
        (["--state", "suspected"], "b"),
        (["--engine", "http://other"], "b"),
        (["--since", "2023-11-15"], "ba"),
        (["--limit", "1"], "c"),
    ],
)
def test_what_is_listed(run, arguments, found):
    """By state, engine and time; open ones are still there, whenever they began."""
    given = [
        incident("a"),
        incident("b", engine="http://other", state=State.SUSPECTED, opened=NOW + 1),
        incident("c", opened=NOW + 2, closed=NOW + 5),
    ]
    listed = json.loads(run(given, "--format", "json", *arguments).output)["incidents"]
    assert [i["id"] for i in listed] == list(found)


def test_hostile_names_are_shown_as_text(run):
    """Nothing that a terminal obeys."""
    output = run([incident(engine="\x1b[2Jhttp://e\n", summary="\x1b]0;x\x07\u202e")]).output
    assert "\\x1b[2Jhttp://e\\n" in output
    assert not any(char in output for char in "\x1b\x07\u202e")


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("7d", NOW - 7 * DAY),
        ("12h", NOW - 12 * 3600),
        ("2023-11-14", NOW - (22 * 3600 + 13 * 60 + 20)),
        ("2023-11-14T22:13:20", NOW),
        ("2023-11-14T23:13:20+01:00", NOW),
    ],
)
def test_since(text, moment):
    """Ago, a date, or a time; UTC if it does not say."""
    assert parse_since(text, NOW) == moment


@pytest.mark.parametrize("text", ["", "yesterday", "2023-13-01", "9999999d", "-1d"])
def test_no_time_is_refused(text):
    """With how to write it."""
    with pytest.raises(ConfigError, match="write it as 7d, 12h"):
        parse_since(text, NOW)


def test_no_file_is_2(tmp_path):
    """A file that is not there, or is something else, is named."""
    (tmp_path / "x").write_text("x")
    for name in ("none", "x"):
        done = CliRunner().invoke(app, ["incidents", "--db", str(tmp_path / name)])
        assert done.exit_code == 2
        assert f"/{name}: " in done.stderr
