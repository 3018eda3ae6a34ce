"""Captures: what was recorded live replays to the same window; files that are cut, damaged or no captures; what redaction covers."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from collector import capture, signals
from collector.capture import CaptureWriter, read_capture, replay
from collector.errors import CaptureError
from collector.intake import Intake
from collector.model import Page, Problem, Source, Window
from collector.redact import Redactor

CAPTURES = Path(__file__).parents[1] / "captures" / "sglang-0.5.23"
FULL: dict[str, Any] = json.loads((CAPTURES / "v1-loads.json").read_text())["full"]["body"]
ENGINE, NODE = "h:30000", "http://h:30000"
INFO = {
    "dp_size": 1,
    "attn_dp_size": 8,
    "version": "0.5.23",
    "served_model_name": "deepseek-ai/DeepSeek-V3",
    "model_path": "/secret/models/ds",
    "disaggregation_mode": "null",
    "api_key": "sk-very-secret",
    "admin_api_key": "sk-admin",
    "launch_command": "python -m sglang --api-key sk-very-secret",
    "hf_token": 1234567,
    "max_total_num_tokens": 449792,
    "comment": "started with sk-very-secret",
    "enable_metrics": True,
    "ssl_keyfile": None,
    "internal_states": [{"env_vars": {"X": "private"}, "db_password": ["p1-long-enough"], "note": "p1-long-enough", "load": 3}],
}


def page(source: Source, body: bytes, arrived: float, status: int = 200, error: str | None = None) -> Page:
    return Page(ENGINE, NODE, source, arrived, 0.05, status, "text/plain", body, error)


def incident() -> list[Page]:
    """Ten seconds of an engine: info once, loads each second, metrics at both ends, one failure."""
    pages = [page(Source.SGLANG_SERVER_INFO, json.dumps(INFO).encode(), 999.5)]
    pages += [page(Source.SGLANG_LOADS, json.dumps(FULL).encode(), 1000.0 + k) for k in range(11) if k != 4]
    pages.append(page(Source.SGLANG_LOADS, b"", 1004.0, 0, f"{NODE}/v1/loads: no complete answer within 5 s"))
    pages += [page(Source.SGLANG_METRICS, (CAPTURES / f"tp8-dp8-ep8-t{n}.prom").read_bytes(), 990.0 + 10 * n) for n in (1, 2)]
    return sorted(pages, key=lambda one: one.arrived)


def record(path: Path, pages: list[Page], *, redacted: bool = True) -> None:
    with CaptureWriter(path, created=1000.0, redacted=redacted) as writer:
        for one in pages:
            writer.write(one)


def live(pages: list[Page]) -> Window:
    intake = Intake()
    for one in pages:
        intake.feed(one)
    return intake.window(ENGINE)


def replayed(path: Path) -> Window:
    intake = Intake()
    replay(path, intake)
    return intake.window(ENGINE)


def assert_same(a: Window, b: Window) -> None:
    assert (a.ranks, a.scrapes, a.engine, a.problems) == (b.ranks, b.scrapes, b.engine, b.problems)
    assert np.array_equal(a.edges, b.edges)
    assert a.values.keys() == b.values.keys()
    assert all(np.array_equal(a.values[name], b.values[name], equal_nan=True) for name in a.values)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]


def test_pages_come_back_byte_for_byte(tmp_path: Path) -> None:
    """Text, bytes that are no text, failures, and every field of a page."""
    pages = [
        *incident(),
        page(Source.SGLANG_METRICS, b"\xff\x00\x1f\x8b", 1011.0),
        page(Source.SGLANG_METRICS, "Grüße\r\n\x7f\u2028\n".encode(), 1012.5),
    ]
    record(tmp_path / "x", pages, redacted=False)
    problems: list[Problem] = []
    assert list(read_capture(tmp_path / "x", problems)) == pages
    assert problems == []


def test_a_replay_gives_the_window_of_the_live_engine(tmp_path: Path) -> None:
    """The same intake, the same pages, the same arrival times: the same window to the last bit."""
    pages = incident()
    record(tmp_path / "x", pages, redacted=False)
    window = replayed(tmp_path / "x")
    assert_same(window, live(pages))
    assert window.has(signals.STEPS_ACTIVE, signals.RUNNING)


def test_redaction_changes_the_model_name_only(tmp_path: Path) -> None:
    """What a diagnosis reads is all there; the model is model-1 on every page."""
    pages = incident()
    record(tmp_path / "x", pages)
    window, original = replayed(tmp_path / "x"), live(pages)
    assert window.engine.facts.model == "model-1"
    assert original.engine.facts.model == "deepseek-ai/DeepSeek-V3"
    assert window.engine.facts.expected_ranks == original.engine.facts.expected_ranks == 8
    assert all(np.array_equal(window.values[name], original.values[name], equal_nan=True) for name in original.values)


def test_redaction_leaves_no_secret_in_the_file(tmp_path: Path) -> None:
    """Neither under its own field, nor where the same value stands elsewhere, nor in command lines, paths and environments."""
    record(tmp_path / "x", incident())
    text = gzip.decompress((tmp_path / "x").read_bytes()).decode()
    for secret in ("sk-very-secret", "sk-admin", "1234567", "p1-long-enough", "DeepSeek", "/secret/models", "private"):
        assert secret not in text
    info = next(json.loads(line["text"]) for line in lines(tmp_path / "x")[1:] if line["source"] == "sglang-server-info")
    assert (info["enable_metrics"], info["ssl_keyfile"], info["comment"]) == (True, None, "started with redacted")
    assert info["internal_states"][0]["load"] == 3


def test_redaction_keeps_models_apart() -> None:
    """Two models stay two series, whatever their names hold; label values that look like the label are left alone."""
    body = (
        b'a{model_name="x \\"q\\", y",dp_rank="0"} 1\na{dp_rank="0",model_name="z"} 2\nb{note="model_name",model_name="z"} 3\nc{x="1"} 4\n'
    )
    redacted = Redactor().page(page(Source.SGLANG_METRICS, body, 1.0)).body
    names = {b'"x \\"q\\", y"': b'"model-1"', b'"z"': b'"model-2"'}
    for name, alias in names.items():
        body = body.replace(b"model_name=" + name, b"model_name=" + alias)
    assert redacted == body


@pytest.mark.parametrize("body", [b"{", b"<html>sk-very-secret", b'{"a":' * 100_000, b'{"a": 1e999}'])
def test_a_server_info_that_cannot_be_redacted_is_left_out(body: bytes) -> None:
    """Rather than written as it is."""
    redacted = Redactor().page(page(Source.SGLANG_SERVER_INFO, body, 1.0))
    assert redacted.body == b""
    assert "left out" in str(redacted.error)


def test_bodies_of_failures_are_left_out() -> None:
    """An error page may hold anything."""
    for failed in (page(Source.SGLANG_METRICS, b"x", 1.0, 500), page(Source.SGLANG_LOADS, b"x", 1.0, 200, "broken")):
        assert Redactor().page(failed).body == b""


def test_the_header_says_what_it_is(tmp_path: Path) -> None:
    """Format with version, whether it is redacted, when it was made; no file name or host of the recorder."""
    record(tmp_path / "x", [])
    assert lines(tmp_path / "x") == [{"format": "slowrank.capture/1", "redacted": True, "created": 1000.0}]
    assert (tmp_path / "x").read_bytes()[3] == 0  # gzip flags: no name


def test_a_recorder_that_is_killed_leaves_a_readable_file(tmp_path: Path) -> None:
    """Every page is on the disk when write returns; the missing end is a problem, not an error."""
    code = (
        "import os, sys\n"
        "from collector.capture import CaptureWriter\n"
        "from collector.model import Page, Source\n"
        "writer = CaptureWriter(sys.argv[1], created=0.0)\n"
        "for k in range(3):\n"
        "    writer.write(Page('e', 'http://h:1', Source.SGLANG_LOADS, 1000.0 + k, 0.1, 200, '', b'{}'))\n"
        "os._exit(9)\n"
    )
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path / "x")], check=False).returncode == 9
    problems: list[Problem] = []
    assert [one.arrived for one in read_capture(tmp_path / "x", problems)] == [1000.0, 1001.0, 1002.0]
    assert "ends early" in str(problems[0])


def test_a_file_cut_anywhere_gives_what_is_before_the_cut(tmp_path: Path) -> None:
    """At every 997th byte: never an exception but for a cut in the header, pages in order, and always a problem."""
    pages = [page(Source.SGLANG_LOADS, json.dumps(FULL).encode() + b"x" * (997 * k % 1000), 1000.0 + k) for k in range(40)]
    record(tmp_path / "x", pages, redacted=False)
    whole = (tmp_path / "x").read_bytes()
    counts = []
    for cut in [*range(200, len(whole), 97), len(whole) - 1]:
        (tmp_path / "cut").write_bytes(whole[:cut])
        problems: list[Problem] = []
        found = list(read_capture(tmp_path / "cut", problems))
        assert found == pages[: len(found)]
        assert len(problems) == 1
        counts.append(len(found))
    assert counts == sorted(counts)
    assert counts[-1] == len(pages)


def test_replaying_a_cut_file_says_so_in_the_window(tmp_path: Path) -> None:
    """The person who reads the verdict knows that the record is not whole."""
    record(tmp_path / "x", incident())
    (tmp_path / "x").write_bytes((tmp_path / "x").read_bytes()[:-20])
    assert any("ends early" in one.what for one in replayed(tmp_path / "x").problems)


def test_damage_ends_the_reading_with_a_problem(tmp_path: Path) -> None:
    """A flipped byte in the middle: what stands before it is read."""
    record(tmp_path / "x", incident(), redacted=False)
    raw = bytearray((tmp_path / "x").read_bytes())
    middle = len(raw) // 2
    raw[middle : middle + 40] = bytes(40)
    (tmp_path / "x").write_bytes(raw)
    problems: list[Problem] = []
    found = list(read_capture(tmp_path / "x", problems))
    assert found == incident()[: len(found)]
    assert len(problems) == 1


HEADER = b'{"format":"slowrank.capture/1"}\n'


@pytest.mark.parametrize(
    "line",
    [
        b"not json",
        b"[]",
        b'{"engine":"e"}',
        b'{"engine":"e","node":"n","source":"vcr","arrived":1}',
        b'{"engine":"e","node":"n","source":"sglang-loads","arrived":-1}',
        b'{"engine":"e","node":"n","source":"sglang-loads","arrived":1e300}',
        b'{"engine":"e","node":"n","source":"sglang-loads","arrived":1,"base64":"???"}',
        b"[" * 100_000,
    ],
)
def test_a_line_that_is_no_page_ends_the_reading_with_a_problem(tmp_path: Path, line: bytes) -> None:
    """Hand-made or foreign lines: the pages before are kept, the line number is named."""
    good = b'{"engine":"e","node":"n","source":"sglang-loads","arrived":1.0}\n'
    (tmp_path / "x").write_bytes(gzip.compress(HEADER + good + line + b"\n" + good, mtime=0))
    problems: list[Problem] = []
    assert len(list(read_capture(tmp_path / "x", problems))) == 1
    assert "line 3 is no recorded page" in str(problems[0])


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "not gzip"),
        (b"sglang:x 1\n", "not gzip"),
        (HEADER, "gzip it if it was unpacked"),
        (gzip.compress(b"", mtime=0), "no header"),
        (gzip.compress(b"\x00\x01\x02", mtime=0), "no header"),
        (gzip.compress(b'{"a":1}\n', mtime=0), "no header"),
        (gzip.compress(b"[" * 100_000 + b"\n", mtime=0), "no header"),
        (gzip.compress(b'{"format":"har/1"}\n', mtime=0), "no capture but 'har/1'"),
        (gzip.compress(b'{"format":"slowrank.capture/2"}\n', mtime=0), "use a newer slowrank"),
        (gzip.compress(HEADER, mtime=0)[:12], "no header"),
    ],
)
def test_what_is_no_capture_is_refused_by_name(tmp_path: Path, content: bytes, words: str) -> None:
    """The path, what was seen, what to do."""
    (tmp_path / "x.capture").write_bytes(content)
    with pytest.raises(CaptureError, match=words) as caught:
        list(read_capture(tmp_path / "x.capture"))
    assert str(tmp_path / "x.capture") in str(caught.value)


def test_a_file_that_cannot_be_opened(tmp_path: Path) -> None:
    """Missing, or a folder."""
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(CaptureError, match="cannot be read"):
            list(read_capture(path))


def test_an_existing_file_is_not_overwritten(tmp_path: Path) -> None:
    """Nor a path without a folder invented."""
    record(tmp_path / "x", incident())
    before = (tmp_path / "x").read_bytes()
    with pytest.raises(CaptureError, match="there already"):
        CaptureWriter(tmp_path / "x", created=0.0)
    assert (tmp_path / "x").read_bytes() == before
    with pytest.raises(CaptureError, match="cannot be written"):
        CaptureWriter(tmp_path / "no" / "x", created=0.0)


def test_a_bomb_is_read_up_to_the_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line without end, or pages without end: bounded memory, the readable part, a problem."""
    monkeypatch.setattr(capture, "MAX_LINE", 1 << 20)
    packer = zlib.compressobj(wbits=31)
    packed = packer.compress(HEADER) + b"".join(packer.compress(bytes(1 << 20)) for _ in range(64)) + packer.flush()
    (tmp_path / "x").write_bytes(packed)
    problems: list[Problem] = []
    assert list(read_capture(tmp_path / "x", problems)) == []
    assert "a line of more than" in str(problems[0])
    monkeypatch.setattr(capture, "MAX_TOTAL", 100_000)
    record(tmp_path / "y", incident(), redacted=False)
    problems = []
    assert len(list(read_capture(tmp_path / "y", problems))) < len(incident())
    assert "more than 100000 bytes" in str(problems[0])


def test_reading_may_stop_at_any_page(tmp_path: Path) -> None:
    """The file is closed with the iterator."""
    record(tmp_path / "x", incident())
    pages = read_capture(tmp_path / "x")
    assert next(iter(pages)).source is Source.SGLANG_SERVER_INFO
