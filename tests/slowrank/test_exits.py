"""One exit code for several engines, and a code for each error that was foreseen."""

from itertools import permutations

import pytest

from collector.errors import CaptureError, ConfigError
from slowrank.exits import Exit, UnreachableError, of_error, worst


@pytest.mark.parametrize(
    ("codes", "code"),
    [
        ([0, 0], 0),
        ([0, 4], 4),
        ([4, 3], 3),
        ([3, 1], 1),
        ([0, 1, 3, 4], 1),
        ([4], 4),
        ([], 3),
    ],
)
def test_over_several_engines_1_beats_3_beats_4_beats_0(codes: list[int], code: int) -> None:
    """The order of the engines does not matter; silence about all engines is not health."""
    assert {worst(map(Exit, order)) for order in permutations(codes)} == {code}


def test_errors_have_their_codes() -> None:
    """Nobody there is 4, everything that the user can correct is 2."""
    assert of_error(UnreachableError("x")) == 4
    assert of_error(ConfigError("x")) == of_error(CaptureError("x")) == 2
