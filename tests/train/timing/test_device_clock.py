"""A device's time by phase, on a device that a test moves along."""

import pytest

from distrain.train.timing import phases
from distrain.train.timing.phases import DeviceClock, PhaseClock, device_clock


class FakeDevice:
    """A stream: markers are passed when the test says so, each at a time of its own."""

    def __init__(self):
        self.queued_s = 0.0  # when all that is queued will be done
        self.now_s = 0.0
        self.made = []
        self.waits = 0
        self.capturing = False

    def marker(self):
        self.made.append(FakeMarker(self))
        return self.made[-1]


class FakeMarker:
    """Stands at the end of what is queued when it is recorded."""

    def __init__(self, device):
        self.device = device
        self.at_s = None

    def record(self):
        assert not self.device.capturing, "a marker in a stream that is being captured"
        self.at_s = self.device.queued_s

    def query(self):
        return self.device.now_s >= self.at_s

    def synchronize(self):
        self.device.waits += 1
        self.device.now_s = max(self.device.now_s, self.at_s)

    def elapsed_time(self, end):
        assert self.query()
        assert end.query()
        return 1000.0 * (end.at_s - self.at_s)


class FakeTime:
    """The host's time, which a test moves along."""

    def __init__(self):
        self.now_s = 100.0

    def perf_counter(self):
        return self.now_s


@pytest.fixture
def host(monkeypatch):
    host = FakeTime()
    monkeypatch.setattr(phases, "time", host)
    return host


@pytest.fixture
def device():
    return FakeDevice()


@pytest.fixture
def clock(device):
    return DeviceClock(device.marker, lambda: device.capturing)


def work(device, clock, name, seconds):
    begun = clock.begin()
    device.queued_s += seconds
    clock.end(name, begun)


def test_what_has_finished_is_told_and_nobody_waits(device, clock):
    work(device, clock, "copy", 1.0)
    work(device, clock, "optimizer", 2.0)
    work(device, clock, "copy", 4.0)
    assert clock.lap() == {}
    device.now_s = 3.5
    assert clock.lap() == pytest.approx({"copy": 1.0, "optimizer": 2.0})
    device.now_s = 7.0
    assert clock.lap() == pytest.approx({"copy": 4.0})
    assert clock.lap() == {}
    assert clock.totals == pytest.approx({"copy": 5.0, "optimizer": 2.0})
    assert device.waits == 0


def test_the_last_lap_waits_once_for_all(device, clock):
    for _ in range(5):
        work(device, clock, "exchange", 1.0)
    assert clock.lap(wait=True) == pytest.approx({"exchange": 5.0})
    assert device.waits == 1
    assert clock.lap(wait=True) == {}
    assert device.waits == 1


def test_a_window_without_end_holds_no_more_markers_than_the_device_is_behind(device, clock):
    for _ in range(5000):
        work(device, clock, "copy", 1.0)
        device.now_s = device.queued_s
    assert len(device.made) <= 2 * 1024
    assert clock.lap() == pytest.approx({"copy": 5000.0})


@pytest.mark.parametrize(("pause_s", "markers"), [(0.0, 4), (40e-6, 4), (60e-6, 6)])
def test_adjacent_spans_share_a_marker(device, clock, host, pause_s, markers):
    """Else the work between them is in neither."""
    for name in ("data_wait", "forward_backward", "optimizer"):
        host.now_s += pause_s
        device.queued_s += 0.25
        work(device, clock, name, 1.0)
    between = 0.25 * (markers == 4)
    expected = {"data_wait": 1.0, "forward_backward": 1.0 + between, "optimizer": 1.0 + between}
    assert clock.lap(wait=True) == pytest.approx(expected)
    assert len(device.made) == markers
    host.now_s += 1.0
    work(device, clock, "copy", 1.0)  # with markers that were read
    work(device, clock, "copy", 1.0)
    assert len({id(marker) for marker in (*clock._idle, *device.made)}) == markers
    assert clock.lap(wait=True) == pytest.approx({"copy": 2.0})
    assert sorted(map(id, clock._idle)) == sorted(map(id, device.made))


def test_a_span_after_one_that_was_read_has_a_marker_of_its_own(device, clock, host):
    work(device, clock, "copy", 1.0)
    clock.lap(wait=True)
    device.queued_s += 0.5
    work(device, clock, "optimizer", 1.0)
    assert clock.lap(wait=True) == pytest.approx({"optimizer": 1.0})


def test_nothing_is_marked_in_a_stream_that_is_captured(device, clock):
    device.capturing = True
    work(device, clock, "forward_backward", 1.0)
    device.capturing = False
    begun = clock.begin()
    device.capturing = True
    clock.end("forward_backward", begun)
    device.capturing = False
    work(device, clock, "optimizer", 2.0)
    assert clock.lap(wait=True) == pytest.approx({"optimizer": 2.0})


def test_phases_are_marked_and_one_that_fails_is_not(device, clock):
    measured = PhaseClock(clock)
    with measured.phase("copy"):
        device.queued_s += 1.0

    def fail():
        with measured.phase("save"):
            device.queued_s += 1.0
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert measured.device_lap() == {}
    assert measured.device_lap(wait=True) == pytest.approx({"copy": 1.0})
    assert measured.device_totals == pytest.approx({"copy": 1.0})


def test_on_a_cpu_there_is_no_such_clock():
    import torch

    assert device_clock(torch.device("cpu")) is None
    clock = PhaseClock(None)
    with clock.phase("copy"):
        pass
    assert clock.device_lap(wait=True) == clock.device_totals == {}
