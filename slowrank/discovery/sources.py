"""Lists of targets that change: files by their time of change, servers by asking again. IO.

Each list is looked at in a task of its own. A list that cannot be read leaves its last good one in force, and says so.
"""

from __future__ import annotations

import asyncio
import glob
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import httpx

from collector.errors import ConfigError
from collector.model import Problem
from diagnose.alerts.secret import Secret
from slowrank.discovery.sd import parse
from slowrank.discovery.spec import Found, Reach

FILES_EVERY = 5.0
"""s between two looks at files' times of change, which cost microseconds; Prometheus hears of changes at once, and rereads every 5 min."""

MAX_LIST = 8 << 20
"""Bytes of one list."""

ASK_LIMIT = 10.0
"""s for one answer of a list's server."""


class Source(Protocol):
    """One list of targets."""

    every: float

    async def look(self) -> None: ...

    @property
    def found(self) -> Sequence[Found]: ...

    @property
    def problems(self) -> Sequence[Problem]: ...

    @property
    def looked(self) -> bool: ...

    @property
    def secrets(self) -> Sequence[Secret | None]: ...


@dataclass
class Files:
    """Files by names or patterns, in JSON or YAML."""

    patterns: Sequence[str]  # absolute
    labels: Mapping[str, str]
    reach: Reach
    every: float = FILES_EVERY
    looked: bool = False
    _known: dict[str, tuple[tuple[int, int, int], list[Found]]] = field(default_factory=dict)
    _bad: dict[str, tuple[tuple[int, int, int] | None, Problem]] = field(default_factory=dict)

    async def look(self) -> None:
        """Read what has changed. A file that is gone takes its targets with it; one that is broken does not."""
        names = sorted({name for pattern in self.patterns for name in glob.glob(pattern)})  # noqa: PTH207 - patterns may be absolute
        self._known = {name: known for name, known in self._known.items() if name in names}
        self._bad = {name: bad for name, bad in self._bad.items() if name in names}
        for name in names:
            self._read(name)
        self.looked = True

    def _read(self, name: str) -> None:
        mark = None
        try:
            stat = Path(name).stat()
            mark = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
            if self._known.get(name, (None,))[0] == mark or (name in self._bad and self._bad[name][0] == mark):
                return
            if stat.st_size > MAX_LIST:
                raise ConfigError(f"{name}: is {stat.st_size:,} bytes; a list has at most {MAX_LIST:,}")
            text = Path(name).read_text(encoding="utf-8")
            self._known[name] = mark, parse(text, name, self.labels, self.reach, is_yaml=name.endswith((".yml", ".yaml")))
            self._bad.pop(name, None)
        except ConfigError as error:
            self._bad[name] = mark, Problem(name, str(error).removeprefix(f"{name}: "), "the last good list stays in force")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "not UTF-8 text"
            self._bad[name] = mark, Problem(name, f"cannot be read ({reason})", "the last good list stays in force")

    @property
    def secrets(self) -> Sequence[Secret | None]:
        """The token of its targets."""
        return (self.reach.token,)

    @property
    def found(self) -> Sequence[Found]:
        """All targets of all files."""
        return [one for _, found in self._known.values() for one in found]

    @property
    def problems(self) -> Sequence[Problem]:
        """What is wrong with files now; that there are none is told too, as it is mostly a misspelt pattern."""
        said = [problem for _, problem in self._bad.values()]
        if self.looked and not self._known and not self._bad:
            said.append(Problem(", ".join(self.patterns), "no such file", "write it, or mend the pattern"))
        return said


@dataclass
class Http:
    """A server that answers with a list."""

    url: str
    every: float
    labels: Mapping[str, str]
    own: Reach  # of the list's server
    reach: Reach  # of the targets
    looked: bool = False
    found: Sequence[Found] = ()
    problems: Sequence[Problem] = ()

    @property
    def secrets(self) -> Sequence[Secret | None]:
        """The tokens of the server and of its targets."""
        return (self.own.token, self.reach.token)

    async def look(self) -> None:
        """Ask once."""
        shown = self.url.partition("?")[0]
        try:
            async with asyncio.timeout(ASK_LIMIT):
                text = await self._ask()
            self.found, self.problems = parse(text, shown, self.labels, self.reach), ()
        except TimeoutError:
            self._failed(shown, f"no complete answer within {ASK_LIMIT:g} s")
        except ConfigError as error:
            self._failed(shown, str(error).removeprefix(f"{shown}: "))
        except (httpx.HTTPError, OSError, ValueError) as error:
            self._failed(shown, f"cannot be reached ({type(error).__name__})")
        self.looked = True

    def _failed(self, shown: str, what: str) -> None:
        self.problems = (Problem(shown, what, "the last good list stays in force"),)

    async def _ask(self) -> str:
        headers = {"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": "slowrank"}
        headers["X-Prometheus-Refresh-Interval-Seconds"] = f"{self.every:g}"
        if self.own.token is not None:
            headers["Authorization"] = f"Bearer {self.own.token.reveal()}"
        trust = self.own.trust()
        client = httpx.AsyncClient(headers=headers, timeout=ASK_LIMIT, verify=True if trust is None else trust, trust_env=False)
        body = bytearray()
        async with client, client.stream("GET", self.url) as reply:
            if reply.status_code != 200:
                raise ConfigError(f"HTTP {reply.status_code}, not a list")
            async for chunk in reply.aiter_raw(65_536):  # never unpacked: a compressed list would be a bomb, and was not asked for
                body += chunk
                if len(body) > MAX_LIST:
                    raise ConfigError(f"more than {MAX_LIST:,} bytes")
        return body.decode()


async def watch(sources: Sequence[Source], changed: Callable[[], None]) -> None:
    """Look at all lists for ever; `changed` is called after each look."""

    async def one(source: Source) -> None:
        while True:
            started = time.monotonic()
            await source.look()
            changed()
            await asyncio.sleep(max(0.0, source.every - (time.monotonic() - started)))

    async with asyncio.TaskGroup() as group:
        for source in sources:
            group.create_task(one(source))
