"""How many incidents are kept, which make room, and how they are stored."""

from __future__ import annotations

import json

from diagnose.incident import Incident, Kind, Policy
from diagnose.model import NoData
from tests.diagnose.story import CLEAR, COOL, LOAD, Story, bad, calm


def test_memory_is_bounded_and_no_page_is_given_up():
    """With more causes than there is room for, suspected incidents make room, confirmed ones stay; closed ones are kept up to a limit."""
    small = Policy(open_limit=4, closed_limit=3)
    story = Story(small).tell(bad(ranks=(0,)), bad(ranks=(0,)))
    first = story.one.id
    nothing = (("slow_rank", NoData(())),)
    story.tell(*[bad(ranks=(k,)) for k in range(1, 40)], outcomes=nothing)
    open_ones = [i for i in story.incidents if i.open]
    assert len(open_ones) == 4
    assert first in {i.id for i in open_ones}
    assert len(story.incidents) - 4 <= 3
    assert not any(e.notify for e in story.events if e.kind is Kind.RESOLVED)


def test_what_has_just_ended_is_still_there_to_be_told():
    """An incident whose all-clear is due now is among those returned, even if none is kept afterwards."""
    story = Story(Policy(closed_limit=0)).tell(bad(), bad(), *[calm()] * (CLEAR + COOL))
    assert story.events[-1].incident == story.one.id
    assert story.tell(calm()).incidents == ()


def test_nothing_makes_room_when_people_know_of_all():
    """Four confirmed incidents fill a book of four: a fifth cause has to wait."""
    full = bad(ranks=(0,), also=tuple(bad(ranks=(k,)) for k in (1, 2, 3)))
    story = Story(Policy(open_limit=4)).tell(full, full, bad(ranks=(9,)))
    assert {i.ranks for i in story.incidents} == {(0,), (1,), (2,), (3,)}


def test_incidents_are_stored_and_read_back_equal():
    """Through JSON text and back, with every optional field filled and empty."""
    both = bad(also=(bad("stale_ledger", (), 0.0, LOAD),))
    story = Story().tell(both, both, bad(ranks=(3, 5)), *[calm()] * (CLEAR + COOL))
    for incident in (*Story().tell(both).incidents, *story.incidents):
        assert Incident.from_json(json.loads(json.dumps(incident.to_json(), allow_nan=False))) == incident
