"""`slowrank workload`: the faults are listed, a timetable is checked before anything starts."""

from typing import Any

import pytest
from typer.testing import CliRunner

from slowrank.app import app
from workload.faults import load


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What reaches the generator instead of starting it."""
    calls: list[Any] = []

    def run(config: Any, schedule: Any, stop: Any, *, say: Any, duration: float) -> None:
        calls.append((config, schedule, duration))
        say("http://127.0.0.1:1")

    monkeypatch.setattr("workload.run.run", run)
    return calls


def test_faults_are_listed_with_what_they_do() -> None:
    """Id, class, devices and the truth about each fault."""
    done = CliRunner().invoke(app, ["workload", "faults"])
    assert done.exit_code == 0
    flat = " ".join(done.output.split())
    for fault in load().values():
        assert f"{fault.id} {fault.klass} " in flat
        assert " ".join(fault.about.split()) in flat
        assert " or ".join(fault.devices) in flat


def test_options_reach_the_generator(ran: list[Any]) -> None:
    """Ranks, device, port, faults and duration arrive as given; the URL is the first line of stdout."""
    arguments = ["--ranks", "4", "--device", "cpu", "--port", "1", "--for", "2m", "--fault", "slow_rank:rank=3,onset=20,duration=30"]
    done = CliRunner().invoke(app, ["workload", "run", *arguments])
    assert done.exit_code == 0, done.output
    ((config, schedule, duration),) = ran
    assert (config.ranks, config.device, config.port, duration) == (4, "cpu", 1, 120.0)
    assert [(s.fault, s.rank, s.onset, s.duration) for s in schedule] == [("slow_rank", 3, 20.0, 30.0)]
    assert done.stdout.splitlines()[0] == "http://127.0.0.1:1"


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("slow_rnk:rank=1", "did you mean slow_rank?"),
        ("slow_rank", "add rank=0 to rank=7"),
        ("slow_rank:rank=8", "add rank=0 to rank=7"),
        ("slow_rank:rank=x", "rank must be a number"),
        ("slow_rank:rnk=1", "'rnk' is not one of"),
    ],
)
def test_a_slip_in_a_fault_is_found_before_the_start(ran: list[Any], fault: str, said: str) -> None:
    """Exit 2, what was seen and the next step, and nothing was started."""
    done = CliRunner().invoke(app, ["workload", "run", "--fault", fault])
    assert done.exit_code == 2
    assert said in done.stderr
    assert ran == []
