"""What faults order: to a rank's process, to the cards, and to the front end's desk."""

from __future__ import annotations

import msgspec

from workload.config import Lengths


class Busy(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Burn `seconds` of CPU in every scheduling pass from now on."""

    seconds: float


class Publisher(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """`stuck`: the rank steps on, and its load snapshots stop."""

    stuck: bool


class GraphVote(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Not `allowed`: the rank votes against every CUDA graph."""

    allowed: bool


class AcceptFactor(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The chance that a drafted token of the rank's requests is accepted becomes `factor` times what it is configured as."""

    factor: float


class KvLinkFactor(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The rank's KV link runs at `factor` times its speed."""

    factor: float


class KvReserve(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """So many tokens of the rank's KV pool are held by nobody's request; 0 gives them back."""

    tokens: int


class Hotspot(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Send `share` of all token copies to the experts of `rank`; None ends it."""

    rank: int
    share: float | None


class Stretch(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Every forward takes `factor` times as long, on all cards."""

    factor: float


class Throttle(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A card runs at `clock` (1 = all) of its SM clock; its driver gives the reasons of `workload.device.state.Reason`."""

    rank: int
    clock: float
    reasons: int


class SlowMemory(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A card's memory clock is at `factor` of what it should be; `single_bit` ECC errors are corrected per second."""

    rank: int
    factor: float
    single_bit: float


class DegradeLink(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A card does its part of collectives at `factor` of the usual speed; checksum errors and PCIe replays per second."""

    rank: int
    factor: float
    crc: float
    replays: float


class Incast(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Dispatches into a card take `factor` times as long: its peers' messages queue before it. No counter of the card shows it."""

    rank: int
    factor: float


class Delay(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A card takes `seconds` more for every step."""

    rank: int
    seconds: float


class Xid(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A card's driver reports the error `code` of NVIDIA's XID catalogue; 0 forgets it, as a driver's reload does."""

    rank: int
    code: int


CardOrder = Throttle | SlowMemory | DegradeLink | Incast | Delay | Xid


# What a rank's process obeys.
RankOrder = Busy | Publisher | GraphVote | AcceptFactor | KvLinkFactor | KvReserve


class Pin(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Keep `concurrency` requests of these lengths alive on `rank`, renewing each that ends, under the name `name`.

    `fresh` tokens of each prompt are in no cache; None: the whole prompt.
    """

    name: str
    rank: int
    concurrency: int
    prompt: Lengths
    fresh: Lengths | None
    output: Lengths
    renew: bool = True  # False: each of them comes once


class Unpin(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Abort what `Pin` of that name started, and stop renewing."""

    name: str


class Hold(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """What the ranks produce stays `seconds` in the front end before any client sees it."""

    seconds: float


class Close(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """`closed`: the ordinary traffic is turned away, what is under way of it too; pinned requests go on."""

    closed: bool


class Drain(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """`drained`: the rank gets no new requests but pinned ones."""

    rank: int
    drained: bool


class Estrange(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """`share` of the requests that a rank gets continue conversations whose prefix another rank holds; 0 ends it."""

    rank: int
    share: float


DeskOrder = Hold | Close | Drain | Estrange
