"""Traffic: what asks for what, and when.

`model` says what traffic can be, `presets` names some of it with its sources, `source` draws requests, `arrivals` their times, and
`replay` reads recorded ones.
"""

from workload.traffic.source import Shape, Source, draw, shape

__all__ = ["Shape", "Source", "draw", "shape"]
