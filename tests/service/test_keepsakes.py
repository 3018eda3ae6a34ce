"""The healthy past outlives a restart; what is damaged is told and left out, and nothing on disk can hurt."""

from __future__ import annotations

import contextlib
import os
import zlib
from functools import partial

import msgspec
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from collector.errors import CaptureError
from collector.model import Clock, Engine, Facts, Window
from collector.signals import BALANCEDNESS_SUM, RESIDENT_TOKENS, SNAPSHOT_AGE
from slowrank.service.keepsakes import LONGEST_DOWN, Keepsakes, packed, unpacked
from slowrank.service.past import Past

NOW = 1_000_000.0


def window(end: float = NOW - 700.0, engine: str = "http://e:1") -> Window:
    """Two ranks and three columns, with what was not observed."""
    values = {
        RESIDENT_TOKENS: np.array([[1.0, np.nan, 3.0], [4.0, 5.5, 6.0]]),
        SNAPSHOT_AGE: np.full((2, 3), np.nan),
        BALANCEDNESS_SUM: np.array([[0.1, 0.2, 0.3]]),
    }
    facts = Facts(version="0.5.23", accelerator="NVIDIA H200", expected_ranks=2, clock=Clock.EXCHANGE)
    edges = np.array([end - 30.0, end - 20.0, end - 5.0, end])
    return Window(Engine(engine, "sglang", facts), edges, (0, 7), values, 31, frozen={RESIDENT_TOKENS: (7,)})


def same(one: Window, other: Window) -> bool:
    tables = one.values.keys() == other.values.keys() and all(
        np.array_equal(one.values[name], other.values[name], equal_nan=True) for name in one.values
    )
    rest = ("engine", "ranks", "scrapes", "frozen")
    return tables and np.array_equal(one.edges, other.edges) and all(getattr(one, name) == getattr(other, name) for name in rest)


@pytest.fixture
def keepsakes(tmp_path):
    return Keepsakes(tmp_path / "i.db.past", lambda: NOW)


@pytest.fixture
def file(keepsakes, tmp_path):
    """The file of a past that was kept, in force now."""
    keepsakes.keep("http://e:1", window())
    (path,) = (tmp_path / "i.db.past").iterdir()
    os.utime(path, (NOW, NOW))
    return path


def _as_it_is(kept, seconds):
    return kept


def test_a_past_is_the_same_after_a_restart(keepsakes, file):
    """To the last bit, what was not observed included; it serves at once, and until a newer one has grown old."""
    found = keepsakes.find("http://e:1")
    assert same(found, window())
    past = Past(600.0, found)
    assert past.baseline(NOW) is found
    for end in range(0, 700, 10):
        newest = window(NOW + end)
        past.note(newest, healthy=True, open_=frozenset(), reach=partial(_as_it_is, newest))
    newer = past.baseline(NOW + 700.0)
    assert newer is not None
    assert newer.end >= NOW
    assert keepsakes.find("another") is None
    assert keepsakes.problems() == ()


def test_a_past_that_nobody_used_for_an_hour_is_left_out(keepsakes, file):
    """It would be of other traffic. It counts when it was last in force, not when it was written."""
    os.utime(file, (NOW - LONGEST_DOWN - 1, NOW - LONGEST_DOWN - 1))
    assert keepsakes.find("http://e:1") is None
    assert keepsakes.problems() == ()
    keepsakes.stamp("http://e:1")
    assert keepsakes.find("http://e:1") is not None


def damaged(**changed):
    kept = msgspec.msgpack.decode(zlib.decompress(packed(window())))
    return zlib.compress(msgspec.msgpack.encode(kept | changed))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "ends early"),
        (b"nonsense", "is damaged"),
        (packed(window())[:-9], "ends early"),
        (damaged(format="slowrank.past/2"), "its format is 'slowrank.past/2', not 'slowrank.past/1'"),
        (damaged(ranks=[0, 0]), "its ranks are none"),
        (damaged(ranks=[0, 10_000_000]), "its ranks are none"),
        (damaged(ranks=[0]), "values, and 3 were to be there"),
        (damaged(edges=b"\0" * 32), "its times do not rise"),
        (damaged(edges=np.array([1.0, np.nan, 2.0, 3.0]).tobytes()), "its times do not rise"),
        (damaged(edges=b"\0" * 31), "edges is cut off"),
        (damaged(engine="http://other:1"), "it is of 'http://other:1'"),
        (damaged(edges=(np.arange(4.0) + NOW).tobytes()), "it lies in the future"),
        (damaged(scrapes="many"), "is damaged"),
    ],
)
def test_a_file_that_is_no_past_is_told_and_left_out(keepsakes, file, content, said):
    """With the engine, what is wrong and what happens now; the next past that is kept takes its place and the word back."""
    file.write_bytes(content)
    os.utime(file, (NOW, NOW))
    assert keepsakes.find("http://e:1") is None
    (problem,) = keepsakes.problems()
    assert "the healthy past of http://e:1 cannot be read" in problem.what
    assert said in problem.what
    keepsakes.keep("http://e:1", window())
    assert keepsakes.problems() == ()


GOOD = packed(window())


@settings(deadline=None)
@given(
    st.binary(max_size=200) | st.builds(lambda at, by: GOOD[:at] + by + GOOD[at + len(by) :], st.integers(0, 400), st.binary(max_size=3))
)
@example(b"")
def test_any_bytes_are_a_past_or_refused(content):
    """Nothing but CaptureError."""
    with contextlib.suppress(CaptureError):
        assert unpacked(content).ranks is not None


def test_a_bomb_is_cut(monkeypatch):
    """A small file that unpacks without end."""
    monkeypatch.setattr("slowrank.service.keepsakes.MAX_PLAIN", 1000)
    with pytest.raises(CaptureError, match="ends early, or is too long"):
        unpacked(zlib.compress(bytes(100_000)))


def test_a_signal_of_another_version_is_left_out():
    """The rest serves."""
    kept = damaged(values={"of_tomorrow": b"\0" * 48, RESIDENT_TOKENS: window().values[RESIDENT_TOKENS].tobytes()})
    assert set(unpacked(kept).values) == {RESIDENT_TOKENS}


def test_what_cannot_be_written_is_told_and_stops_nothing(tmp_path):
    """A file where the folder should be."""
    (tmp_path / "i.db.past").write_text("")
    keepsakes = Keepsakes(tmp_path / "i.db.past", lambda: NOW)
    keepsakes.keep("e", window(engine="e"))
    assert "the healthy past of e cannot be written" in str(keepsakes.problems()[0])
    keepsakes.stamp("e")
    keepsakes.drop("e")
    keepsakes.sweep()


def test_files_of_engines_that_left_go(keepsakes, file, tmp_path):
    """At once when the engine is let go, after an hour when it went while nobody watched; a young file of another stays."""
    keepsakes.keep("http://f:1", window(engine="http://f:1"))
    folder = tmp_path / "i.db.past"
    os.utime(file, (NOW - LONGEST_DOWN - 1, NOW - LONGEST_DOWN - 1))
    keepsakes.stamp("http://f:1")
    keepsakes.sweep()
    (left,) = folder.iterdir()
    assert left != file
    keepsakes.drop("http://f:1")
    assert list(folder.iterdir()) == []
