"""Child processes that never outlive their owner, and the thread that starts, watches and ends them.

One thread does all of it, for as long as the children live: Linux counts the thread that started a child as its parent, so a
child that asked to die with its parent would die with a short-lived starter thread.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from workload.child import PEER_LOST
from workload.wire import Channel, PeerLostError, Ready, Spec

_POLL_SECONDS = 0.2
_SETTLE_SECONDS = 2.0  # after a death, at most, until one has ended that did not just lose a peer


class ClusterError(Exception):
    """The cluster did not start, or one of its processes has died."""


class Nursery:
    """Runs one child per spec. `sockets` are the children's ends, by number as in the specs; they are closed here once inherited."""

    def __init__(self, specs: Sequence[Spec], sockets: Sequence[socket.socket], workdir: Path) -> None:
        self._specs = specs
        self._sockets = sockets
        self._workdir = workdir
        self._changed = threading.Condition()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._controls: dict[str, Channel] = {}
        self._ready: dict[str, Ready] = {}
        self._failure: str | None = None
        self._waker, self._wake = socket.socketpair()
        self._thread = threading.Thread(target=self._run, name="workload-nursery", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wait_ready(self, timeout: float) -> dict[str, Ready]:
        """What each child said when it was ready. Raises ClusterError with the name of a child that died or is late (seconds)."""
        with self._changed:
            self._changed.wait_for(lambda: self._failure is not None or len(self._ready) == len(self._specs), timeout)
            self.check()
            if missing := [spec.name for spec in self._specs if spec.name not in self._ready]:
                raise ClusterError(f"not ready after {timeout:g} s: {', '.join(missing)}")
            return dict(self._ready)

    def check(self) -> None:
        """Raises ClusterError if a child has died."""
        if self._failure is not None:
            raise ClusterError(self._failure)

    def send(self, name: str, message: msgspec.Struct) -> None:
        try:
            self._controls[name].send(message)
        except (PeerLostError, OSError):  # OSError: the watching thread has closed the socket
            self.check()
            raise ClusterError(f"{name} is gone") from None

    def signal(self, name: str, number: int) -> None:
        self._processes[name].send_signal(number)

    def pid(self, name: str) -> int:
        return self._processes[name].pid

    def stop(self) -> None:
        """Kills all children, stopped ones too, and waits for their end. There is nothing in them to save. May be called twice."""
        self._wake.close()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        try:
            # inherited by the children: a Ctrl-C that comes before they can ignore it must not kill them
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
            for spec in self._specs:
                self._spawn(spec)
            self._let_go()  # while we hold an end ourselves, nobody notices that a peer is gone
            self._watch()
        except Exception as error:  # noqa: BLE001  # a thread has nobody else to tell
            self._fail(f"{type(error).__name__}: {error}")
        finally:
            self._kill()

    def _let_go(self) -> None:
        for sock in self._sockets:
            sock.close()

    def _spawn(self, spec: Spec) -> None:
        ours, theirs = socket.socketpair()
        env = os.environ | {
            "PROMETHEUS_MULTIPROC_DIR": str(self._workdir / "metrics"),
            # numpy's own threads would fight the ranks for the cores
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
            # the child must find the package that its parent runs from, installed or not
            "PYTHONPATH": os.pathsep.join(
                [str(Path(__file__).parent.parent), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
            ),
        }
        with theirs, self._log(spec.name).open("wb") as log:
            self._controls[spec.name] = Channel(ours, Ready)
            self._processes[spec.name] = subprocess.Popen(  # noqa: S603  # ourselves, with a number
                [sys.executable, "-P", "-m", "workload.child", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=env,
                pass_fds=[theirs.fileno(), *spec.links.values()],
            )
        self._controls[spec.name].send(spec)

    def _watch(self) -> None:
        talking = dict(self._controls)
        while True:
            ready, _, _ = select.select([self._waker.fileno(), *(c.fileno() for c in talking.values())], [], [], _POLL_SECONDS)
            if self._waker.fileno() in ready:
                return
            for name, control in list(talking.items()):
                if control.fileno() in ready:
                    try:
                        self._hear(name, control)
                    except PeerLostError:
                        del talking[name]
            if any(p.poll() is not None for p in self._processes.values()):
                self._fail(self._autopsy())
                return

    def _hear(self, name: str, control: Channel) -> None:
        for message in control.drain():
            with self._changed:
                self._ready[name] = message
                self._changed.notify_all()

    def _autopsy(self) -> str:
        """Names the child that died, and not those that died of its death."""
        deadline = time.monotonic() + _SETTLE_SECONDS
        while True:
            dead = {name: code for name, p in self._processes.items() if (code := p.poll()) is not None}
            to_blame = [name for name, code in dead.items() if code != PEER_LOST]
            if to_blame or time.monotonic() > deadline:
                break
            time.sleep(0.02)
        name = (to_blame or list(dead))[0]
        code = dead[name]
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"
        said = self._log(name).read_text(errors="replace").strip()
        return f"{name} {how}" + (f"; it said:\n{said[-2000:]}" if said else "")

    def _log(self, name: str) -> Path:
        return self._workdir / f"{name}.log"

    def _fail(self, why: str) -> None:
        with self._changed:
            self._failure = why
            self._changed.notify_all()

    def _kill(self) -> None:
        self._let_go()
        for process in self._processes.values():
            process.kill()
        for process in self._processes.values():
            process.wait()
        for control in self._controls.values():
            control.close()
        self._waker.close()
