"""Arguments are files or addresses; a capture is read like an engine."""

import gzip
from pathlib import Path

import pytest

from collector.capture import CaptureWriter
from collector.errors import CaptureError, ConfigError
from collector.model import Page, Source
from slowrank.exits import UnreachableError
from slowrank.recording import recording
from slowrank.targets import machines, parse, replay, split


def _page(at: float, engine: str = "h:1") -> Page:
    return Page(engine, f"http://{engine}", Source.SGLANG_LOADS, at, 0.1, 0, "", b"", "nobody there")


def test_an_existing_file_is_a_capture_the_rest_are_addresses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The order within each kind is kept; a URL is never a file."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "seen.slowrank").touch()
    (tmp_path / "host:1").touch()
    assert split(["http://a:1", "seen.slowrank", "b:2", "host:1"]) == ([Path("seen.slowrank"), Path("host:1")], ["http://a:1", "b:2"])


@pytest.mark.parametrize("text", ["gone.slowrank", "./gone", "/no/such/file", "../gone", "~/gone-for-sure"])
def test_what_looks_like_a_file_and_is_none_is_said(text: str) -> None:
    """Better than "no such host"."""
    with pytest.raises(ConfigError, match="there is no such capture file"):
        split([text])


def test_an_engine_given_twice_is_refused() -> None:
    """Two readers of one engine would double its load and its report."""
    with pytest.raises(ConfigError, match="h:1 is given 2 times"):
        parse(["h:1", "h:1"], None)


def test_the_key_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable's value is the key; an empty or missing variable is refused, and named."""
    monkeypatch.setenv("ENGINE_KEY", "s3cret")
    assert parse(["h:1"], "ENGINE_KEY")[0].api_key == "s3cret"
    monkeypatch.setenv("ENGINE_KEY", "")
    with pytest.raises(ConfigError, match="--api-key-env ENGINE_KEY"):
        parse(["h:1"], "ENGINE_KEY")


def test_a_replayed_capture_gives_a_window_per_engine(tmp_path: Path) -> None:
    """Engines of one capture stay apart, also those that never answered: their problems are worth reading."""
    path = tmp_path / "two.slowrank"
    with CaptureWriter(path, created=0.0) as writer:
        for at in (100.0, 101.0):
            writer.write(_page(at))
            writer.write(_page(at, "i:1"))
    windows = replay(path, None)
    assert [w.engine.id for w in windows] == ["h:1", "i:1"]
    assert all("nobody there" in str(w.problems[0]) for w in windows)


def test_times_in_a_file_cannot_take_all_memory(tmp_path: Path) -> None:
    """A capture that claims to span a century is read with a day's memory."""
    path = tmp_path / "century.slowrank"
    with CaptureWriter(path, created=0.0) as writer:
        writer.write(_page(0.0))
        writer.write(_page(4_000_000_000.0))
    assert len(replay(path, None)) == 1


def test_an_empty_capture_is_an_error(tmp_path: Path) -> None:
    """There is nothing to judge, and the next step is said."""
    path = tmp_path / "empty.slowrank"
    with CaptureWriter(path, created=0.0):
        pass
    with pytest.raises(CaptureError, match="holds no page at all"):
        replay(path, None)


def test_recording_without_a_path_keeps_nothing() -> None:
    """The same call, no file."""
    with recording(None) as keep:
        keep(_page(1.0))


def test_a_recording_is_a_capture_and_never_overwritten(tmp_path: Path) -> None:
    """What was recorded can be replayed; a second recording under the same name is refused and leaves the first alone."""
    path = tmp_path / "a.slowrank"
    with recording(path) as keep:
        keep(_page(1.0))
    before = path.read_bytes()
    with pytest.raises(CaptureError, match="there already"), recording(path):
        pass
    assert path.read_bytes() == before
    assert gzip.decompress(before)
    assert len(replay(path, None)) == 1


def test_a_recording_that_reached_nobody_leaves_no_file(tmp_path: Path) -> None:
    """A file of refusals would only be mistaken for a recording."""
    path = tmp_path / "a.slowrank"
    with pytest.raises(UnreachableError), recording(path) as keep:
        keep(_page(1.0))
        raise UnreachableError("nobody")
    assert not path.exists()


def test_machines_belong_to_one_engine() -> None:
    """A page of cards cannot be of two engines; the way out is named."""
    on = machines(["node0:9400"], procfs=False, nvml=False, gpus=None)
    assert parse(["a:1"], None, on)[0].hardware == ("http://node0:9400/metrics",)
    with pytest.raises(ConfigError, match="one by one"):
        parse(["a:1", "b:1"], None, on)


def test_local_sources_and_the_join_come_from_the_options() -> None:
    """--procfs and --nvml are of this node; --gpus says whose card is whose."""
    on = machines(None, procfs=True, nvml=True, gpus="0=1,1=0")
    assert parse(["a:1"], None, on)[0].local == {Source.PROCFS, Source.NVML}
    assert on.gpus == {0: ("1",), 1: ("0",)}
    with pytest.raises(ConfigError, match="--gpus"):
        machines(None, procfs=False, nvml=False, gpus="nonsense")
