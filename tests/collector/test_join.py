"""Whose card is it: by the user's word, by process, by order; and when nothing is joined."""

from __future__ import annotations

from typing import Any

import pytest

from collector.errors import ConfigError
from collector.hardware.cards import Card
from collector.hardware.join import Join, Seen, join, parse_gpus

A, B = "http://node-a:9400/metrics", "http://node-b:9400/metrics"


def cards(*hosts: tuple[str, str, int], pids: dict[int, tuple[int, ...]] | None = None) -> list[Seen]:
    """(page, host, count) after another, numbered from 0."""
    out: list[Seen] = []
    for page, host, count in hosts:
        for index in range(count):
            number = len(out)
            out.append(Seen(number, page, Card(host, index, f"GPU-{host}-{index}", pids=(pids or {}).get(number, ()))))
    return out


def joined(seen: list[Seen], ranks: int = 4, **changes: Any) -> Join:
    usual: dict[str, Any] = {"where": "dcgm", "engine": "node-a:30000", "ranks": ranks, "cards": None, "asked": {}, "owners": {}}
    return join(seen, **(usual | changes))


def test_one_node_gives_rank_k_its_kth_card() -> None:
    """Four cards, four ranks."""
    assert joined(cards((A, "node-a", 4))) == Join({0: (0,), 1: (1,), 2: (2,), 3: (3,)})


def test_the_only_page_of_a_host_that_the_engine_does_not_name_is_joined_and_said() -> None:
    """A node may have two names, so its cards count; that they may be another node's is said, with what to do."""
    found = joined(cards((B, "node-b", 4)))
    assert found.cards == {0: (0,), 1: (1,), 2: (2,), 3: (3,)}
    assert "cards of node-b, which node-a:30000 does not name" in str(found.problems[0])
    by_label = joined(cards(("http://10.0.0.7:9400/metrics", "node-a", 4)))
    assert (len(by_label.cards), by_label.problems) == (4, ())
    assert joined(cards(("localhost", "localhost", 4))).problems == ()  # the driver of the node that we run on


def test_nodes_count_in_the_order_of_the_engines_address() -> None:
    """node-b is node 0 there, though its page was read second."""
    found = joined(cards((A, "node-a", 2), (B, "node-b", 2)), engine="node-b:30000,node-a:30000")
    assert found.cards == {0: (2,), 1: (3,), 2: (0,), 3: (1,)}


def test_a_page_of_many_hosts_is_cut_to_the_engines() -> None:
    """A cluster-wide page: only the host that the engine's address names counts, also by its short name."""
    page = "http://prometheus:9090/federate"
    found = joined(cards((page, "node-x.cluster", 4), (page, "node-a.cluster", 4)))
    assert found == Join({0: (4,), 1: (5,), 2: (6,), 3: (7,)})


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        (cards((A, "node-a", 8)), "8 cards for 4 ranks"),
        (cards((A, "node-a", 3)), "3 cards for 4 ranks"),
        (cards((A, "x", 2), (B, "y", 2)), "cards of 2 hosts"),
        (cards((A, "node-a", 2), ("http://node-a:9401/metrics", "node-a", 2)), "two pages of cards are of one node"),
    ],
)
def test_what_is_ambiguous_is_said_and_not_joined(seen: list[Seen], said: str) -> None:
    """Another number of cards, hosts that nobody knows, a node twice: no card is any rank's, and the Problem says what to give."""
    found = joined(seen)
    assert found.cards == {}
    assert said in str(found.problems[0])


def test_ranks_of_several_cards_need_the_engines_word() -> None:
    """Eight cards and four ranks: two each if the engine says that it has eight cards."""
    assert joined(cards((A, "node-a", 8)), cards=8).cards == {0: (0, 1), 1: (2, 3), 2: (4, 5), 3: (6, 7)}


def test_processes_are_surer_than_order() -> None:
    """The driver knows which process is on which card: order and number do not matter then."""
    seen = cards(("localhost", "localhost", 3), pids={0: (11, 99), 2: (10,)})
    assert joined(seen, owners={10: 0, 11: 1}).cards == {0: (2,), 1: (0,)}


def test_two_ranks_on_one_card_are_not_joined() -> None:
    """A card that two ranks share says nothing of either."""
    found = joined(cards(("localhost", "localhost", 2), pids={0: (10, 11)}), owners={10: 0, 11: 1})
    assert found.cards == {}
    assert "ranks 0-1 compute on one card, GPU 0" in str(found.problems[0])


def test_the_users_word_goes_first() -> None:
    """By index, host and index, or UUID; a name that fits no card or two is said, the others count."""
    seen = cards((A, "node-a", 2), (B, "node-b", 2))
    asked = parse_gpus("0=node-b/1,1=GPU-node-a-0,2=1,3=node-a/1+node-b/0")
    found = joined(seen, asked=asked)
    assert found.cards == {0: (3,), 1: (0,), 3: (1, 2)}
    assert "2 cards fit --gpus 2=1" in str(found.problems[0])


@pytest.mark.parametrize("text", ["", "0", "0=", "=1", "x=1", "0=1,0=2", "0=1,1=1", "-1=0", "0=1+"])
def test_what_is_no_list_of_ranks_and_cards_is_refused(text: str) -> None:
    """With an example of what to write."""
    with pytest.raises(ConfigError, match="0=0,1=1"):
        parse_gpus(text)
