"""Where every process of a cluster begins: `python -m workload.child FD`, told over that inherited socket what to be.

A plain subprocess and not `multiprocessing`: its spawn method would import the caller's main module, be it pytest or the command
line with all it needs, into each of ten processes.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import sys

import setproctitle

from workload.wire import CardOrder, Channel, Hotspot, PeerLostError, RankOrder, Spec, Stretch

PEER_LOST = 71  # exit status of a process whose peer went away: not the one to blame
_PR_SET_PDEATHSIG = 1


def main() -> None:
    # a Ctrl-C goes to the whole foreground group; the cluster's owner hears it too and ends its children itself
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    control = socket.socket(fileno=int(sys.argv[1]))
    try:
        spec: Spec = Channel(control, Spec).receive()
        links = {name: socket.socket(fileno=fd) for name, fd in spec.links.items()}
        _be(spec, control, links)
    except PeerLostError:
        sys.exit(PEER_LOST)


def _be(spec: Spec, control: socket.socket, links: dict[str, socket.socket]) -> None:
    if spec.name == "frontend":
        from workload import frontend

        # not tied to the owner by a signal: it hears of the owner's death through `control`, and cleans up
        frontend.run(spec, control, _ranks(links))
        return
    _die_with(spec.parent)
    setproctitle.setproctitle(_title(spec))
    if spec.name == "fabric":
        from workload.device import fabric

        fabric.run(spec.config, Channel(control, Hotspot | Stretch | CardOrder), _ranks(links))
        return
    from workload import rank

    rank.run(
        spec.config,
        spec.rank,
        spec.loads_path,
        Channel(control, RankOrder),
        _ranks(links),
        frontend=links["frontend"],
        fabric=links["fabric"],
    )


def _title(spec: Spec) -> str:
    """As the engine that is played titles its processes, by which node-side tools know them."""
    if spec.name == "fabric":
        return "slowrank-workload: cards"
    if spec.config.vllm is not None:
        return f"VLLM::EngineCore_DP{spec.rank}"
    return f"sglang::scheduler_DP{spec.rank}_TP{spec.rank}_EP{spec.rank}"


def _ranks(links: dict[str, socket.socket]) -> dict[int, socket.socket]:
    return {int(name.removeprefix("rank")): link for name, link in links.items() if name.startswith("rank")}


def _die_with(parent: int) -> None:
    """Asks Linux to kill this process when its parent is gone. A stopped process could not notice by itself.

    Elsewhere a process ends when it finds its sockets closed.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it was gone before we asked
            sys.exit(PEER_LOST)


if __name__ == "__main__":
    main()
