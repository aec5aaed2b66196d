"""Events on the wire, made once however many follow."""

from distrain.service.api.streams.event_feed import EventFeed
from distrain.service.values import Event


def test_an_event_is_made_once_and_the_oldest_are_forgotten():
    feed, made = EventFeed(lambda seq, limit: [], lambda: 0), []

    def make(event: Event) -> bytes:
        made.append(event.seq)
        return b"%d" % event.seq

    events = [Event(seq, "j", "ads", "alice", "job.state", {}, 0.0) for seq in range(1, 1002)]
    for _ in range(200):
        assert feed.framed(events[0], make) == b"1"
    assert made == [1]
    for event in events[1:]:
        feed.framed(event, make)
    feed.framed(events[0], make)
    assert made == [*range(1, 1002), 1]
