from collections import Counter

from hypothesis import given, settings, strategies as st

from distrain.jobs.assignment import RankPlacement, Slot, World
from distrain.scheduler.lifecycle.queue import Shortage, place_gang

SLOTS = st.builds(
    lambda host, port: Slot(host, f"tcp://{host}:{port}"),
    st.sampled_from("abcd"),
    st.integers(0, 7),
)
CLUSTERS = st.lists(SLOTS, unique=True, max_size=20)
GANGS = st.integers(1, 12)


def fewest_hosts(num_ranks, free):
    """Greedy from the largest: the first k hosts hold the most slots that any k hosts hold."""
    needed = num_ranks
    for hosts, (_, count) in enumerate(Counter(s.host for s in free).most_common(), start=1):
        needed -= count
        if needed <= 0:
            return hosts
    return None


@given(GANGS, CLUSTERS, st.lists(SLOTS, max_size=10), st.randoms(use_true_random=False))
@settings(deadline=None, max_examples=40)
def test_the_laws_of_placement(num_ranks, slots, busy, rng):
    free = set(slots) - set(busy)
    placed = place_gang(num_ranks, slots, busy)

    if len(free) < num_ranks:
        assert isinstance(placed, Shortage)
        return
    used = [placement.slot for placement in placed]
    assert len(used) == len(set(used)) == num_ranks
    assert set(used) <= free
    assert [p.world.rank for p in placed] == list(range(num_ranks))
    assert {p.world.num_ranks for p in placed} == {num_ranks}
    check_nodes(placed)
    assert len({slot.host for slot in used}) == fewest_hosts(num_ranks, free)

    rng.shuffle(slots)
    rng.shuffle(busy)
    assert place_gang(num_ranks, slots, busy) == placed
    assert place_gang(num_ranks, frozenset(slots), tuple(busy) * 2) == placed


def check_nodes(placed):
    per_host = Counter(p.slot.host for p in placed)
    for host, count in per_host.items():
        worlds = [p.world for p in placed if p.slot.host == host]
        assert {w.ranks_per_node for w in worlds} == {count}
        ranks = [w.rank for w in worlds]
        assert ranks == list(range(ranks[0], ranks[0] + count))  # neighbours share a host


def test_the_host_with_the_most_room_comes_first_and_ties_go_by_name():
    slots = [Slot(host, f"tcp://{host}:{port}") for host in "cab" for port in (2, 1)]
    slots.append(Slot("b", "tcp://b:3"))
    placed = place_gang(4, slots)
    assert [p.slot.worker for p in placed] == [
        "tcp://b:1",
        "tcp://b:2",
        "tcp://b:3",
        "tcp://a:1",
    ]
    assert placed[3] == RankPlacement(slots[3], World(3, 4, 1))


def test_a_shortage_says_whether_the_cluster_is_small_or_busy(wording):
    slots = [Slot("a", f"tcp://a:{port}") for port in range(3)]
    gone = Slot("b", "tcp://b:1")
    assert len(place_gang(3, slots, [gone])) == 3, "busy slots that left do not count"
    for num_ranks, free, busy in ((4, slots, []), (1, [], []), (3, slots, [*slots[:1], gone])):
        wording(place_gang(num_ranks, free, busy).reason)
    wording(place_gang(2, slots[:1] * 2).reason)  # named twice, it is one slot
