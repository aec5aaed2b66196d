import pytest
from hypothesis import given, strategies as st

from distrain.jobs.events import PHASES
from distrain.train.timing import phases
from distrain.train.timing.phases import PhaseClock

SECONDS = st.floats(0, 1e4, allow_subnormal=False)
# A piece of a rank's life: seconds in a phase, seconds outside of any (None), or a lap.
PIECES = st.one_of(
    st.tuples(st.sampled_from(PHASES), SECONDS), st.tuples(st.none(), SECONDS), st.just("lap")
)


class FakeTime:
    """Time that passes only when told to."""

    def __init__(self):
        self.now_s = 1234.5

    def perf_counter(self):
        return self.now_s


@pytest.fixture
def fake_time(monkeypatch):
    fake = FakeTime()
    monkeypatch.setattr(phases, "time", fake)
    return fake


def live(fake_time, pieces):
    """Live through some pieces; the windows, and what they should hold."""
    clock, windows, truth = PhaseClock(), [], [dict.fromkeys(PHASES, 0.0)]
    for piece in [*pieces, "lap"]:
        if piece == "lap":
            windows.append(clock.lap())
            truth.append(dict.fromkeys(PHASES, 0.0))
            continue
        name, seconds = piece
        truth[-1][name or "other"] += seconds
        if name is None:
            fake_time.now_s += seconds
            continue
        with clock.phase(name):
            fake_time.now_s += seconds
    return clock, windows, truth[:-1]


@given(pieces=st.lists(PIECES, max_size=20))
def test_the_parts_are_right_and_sum_to_the_whole(pieces):
    with pytest.MonkeyPatch.context() as monkeypatch:
        fake = FakeTime()
        monkeypatch.setattr(phases, "time", fake)
        clock, windows, truth = live(fake, pieces)
    for window, expected in zip(windows, truth, strict=True):
        assert window == pytest.approx(expected, abs=1e-6)
    assert sum(clock.totals.values()) == pytest.approx(clock.elapsed_s, abs=1e-6)
    assert clock.elapsed_s == pytest.approx(fake.now_s - 1234.5, abs=1e-6)
    for name in PHASES:
        assert clock.totals[name] == pytest.approx(sum(w[name] for w in windows), abs=1e-6)


def test_a_phase_that_fails_is_counted(fake_time):
    clock = PhaseClock()

    def save():
        with clock.phase("save"):
            fake_time.now_s += 2.0
            raise KeyError

    with pytest.raises(KeyError):
        save()
    assert clock.lap()["save"] == 2.0


def test_elapsed_time_ends_with_the_last_lap(fake_time):
    clock = PhaseClock()
    fake_time.now_s += 1.0
    assert clock.elapsed_s == 0.0
    clock.lap()
    fake_time.now_s += 5.0
    assert clock.elapsed_s == 1.0
