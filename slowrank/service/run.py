"""The process around the service: its socket, its signals, its end. IO."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import Callable, Iterator

import structlog
import uvicorn

from collector.errors import ConfigError, SlowrankError
from slowrank.service.journal import hide, write_log
from slowrank.service.plan import Plan
from slowrank.service.service import Service
from slowrank.service.web.app import web

log = structlog.get_logger(__name__)

READERS = 64
"""Requests at a time, beyond which the answer is 503: some people, Prometheus twice and probes are ten."""

LAST_ANSWERS = 3.0
"""s for answers under way when the process ends."""


class _Server(uvicorn.Server):
    """Leaves signals to us: the service has more to end than its pages."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Captures none."""
        yield


def run(make: Callable[[], Plan]) -> None:
    """Serve until SIGTERM or SIGINT. `make` reads the configuration, now and at each SIGHUP. ConfigError when it cannot begin."""
    plan = make()
    service = plan.config.service
    write_log(service.log_format, service.log_level)
    with _listening(plan) as door:
        asyncio.run(_serve(plan, make, door))


async def _serve(plan: Plan, make: Callable[[], Plan], door: socket.socket) -> None:
    hide(plan.secrets)
    service = Service(plan)
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    reloads: set[asyncio.Task[bool]] = set()

    def remade() -> Plan:
        made = make()
        hide(made.secrets)
        return made

    def on_hup() -> None:
        if not reloads:  # one at a time; a second signal meanwhile is the same wish
            task = asyncio.create_task(service.reload(remade))
            reloads.add(task)
            task.add_done_callback(reloads.discard)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    loop.add_signal_handler(signal.SIGHUP, on_hup)
    config = uvicorn.Config(
        web(service),
        log_config=None,
        access_log=False,
        lifespan="off",
        server_header=False,
        limit_concurrency=READERS,
        timeout_graceful_shutdown=int(LAST_ANSWERS),
    )
    server = _Server(config)
    host, port = door.getsockname()[:2]
    log.info("slowrank serves", url=f"http://{f'[{host}]' if ':' in host else host}:{port}/", incidents=str(plan.incidents))
    tasks = [asyncio.create_task(service.run()), asyncio.create_task(server.serve(sockets=[door]))]
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait([stopping, *tasks], return_when=asyncio.FIRST_COMPLETED)
    log.info("slowrank ends")
    server.should_exit = True
    stopping.cancel()
    tasks[0].cancel()
    ended = await asyncio.gather(*tasks, return_exceptions=True)
    for outcome in ended:
        if isinstance(outcome, Exception):
            raise outcome
    if not stop.is_set():
        raise SlowrankError("a part of the service ended by itself; its log says why")


@contextlib.contextmanager
def _listening(plan: Plan) -> Iterator[socket.socket]:
    """The socket, bound before anything else is begun. ConfigError when it cannot be."""
    try:
        family, kind, proto, _, address = socket.getaddrinfo(plan.host, plan.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        door = socket.socket(family, kind, proto)
    except OSError as error:
        raise ConfigError(f"service.listen = {plan.config.service.listen}: {error.strerror}; give an address of this machine") from None
    with door:
        try:
            door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            door.bind(address)
            door.listen(128)  # from now on readers wait instead of being refused
        except OSError as error:
            raise ConfigError(
                f"service.listen = {plan.config.service.listen}: {error.strerror}; give an address of this machine and a free port"
            ) from None
        yield door
