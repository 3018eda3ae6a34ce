"""`slowrank workload run --traffic --router`: what may be asked for, and what is refused before anything starts."""

from __future__ import annotations

from typing import get_args

import pytest

from collector.errors import ConfigError
from slowrank.commands.cluster_options import with_traffic
from slowrank.commands.workload import RouterMethod
from workload.config import ClusterConfig, Method
from workload.traffic.presets import PRESETS


def test_a_preset_or_a_recording_takes_the_place_of_the_default(tmp_path):
    """A name ending in .csv is a file, and then no other traffic runs."""
    assert with_traffic(ClusterConfig(), "rag").traffic == PRESETS["rag"]
    recording = tmp_path / "day.csv"
    recording.write_text("time,input,output\n0,10,5\n")
    config = with_traffic(ClusterConfig(), str(recording))
    assert (config.traffic, config.replay) == (None, str(recording))


def test_a_slip_is_told_before_anything_starts(tmp_path):
    """With the nearest preset, or the line and column of the file."""
    with pytest.raises(ConfigError, match=r"^--traffic no traffic 'agnet'; did you mean agent\?"):
        with_traffic(ClusterConfig(), "agnet")
    recording = tmp_path / "day.csv"
    recording.write_text("time,input,output\n0,10,five\n")
    with pytest.raises(ConfigError, match=r"day\.csv, line 2, column output: 'five' is not a whole number"):
        with_traffic(ClusterConfig(), str(recording))


def test_the_command_line_offers_every_router():
    """The names of the option are those of the configuration."""

    def names(kind: object) -> set[str]:
        return {name for part in get_args(kind) for name in ({part} if isinstance(part, str) else names(part))}

    assert {method.value for method in RouterMethod} == names(Method)
