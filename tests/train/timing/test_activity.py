"""What a rank is at and whom it waits for, seen from another thread."""

import threading

from distrain.train.checkpoint import RankStore
from distrain.train.control.control import Control
from distrain.train.control.step_agreement import StepAgreement
from distrain.train.timing.phases import PEERS, READER, PhaseClock, RankActivity, wait_of, waiting

LONG_S = 20.0


def test_waits_nest_and_end_with_an_error_too():
    me = threading.get_ident()
    with waiting(PEERS):
        try:
            with waiting(READER):
                assert wait_of(me) == "reader"
                raise KeyError
        except KeyError:
            assert wait_of(me) == "peers"
    assert wait_of(me) == ""


def test_a_wait_for_a_thread_is_that_threads_wait():
    waits, go_on = threading.Event(), threading.Event()

    def route():
        with waiting(READER):
            waits.set()
            go_on.wait(LONG_S)

    thread = threading.Thread(target=route)
    thread.start()
    assert waits.wait(LONG_S)
    activity = RankActivity()
    assert activity.waiting_for == ""
    with waiting(thread.ident):
        assert activity.waiting_for == "reader"
        go_on.set()
        thread.join(LONG_S)
        assert activity.waiting_for == ""  # it works, or has ended


def test_a_reader_that_waits_for_its_storage_says_so(monkeypatch):
    activity, away = RankActivity(), True
    monkeypatch.setattr("distrain.train.timing.phases.is_retrying", lambda: away)
    assert activity.waiting_for == ""  # some thread of the loader waits, and the training works
    with waiting(PEERS):
        assert activity.waiting_for == "peers"
    with waiting(READER):
        assert activity.waiting_for == "storage"
        away = False
        assert activity.waiting_for == "reader"


def test_a_heartbeat_tells_step_progress_phase_and_wait():
    board = RankStore()
    control = Control(board, StepAgreement(board, 0, 1), RankActivity())
    assert control.heartbeat(3).doing == "setup"
    control.activity.clock = PhaseClock()
    assert control.agreement.begin() == control.agreement.begin() == "go"
    control.activity.step = 2
    control.activity.count_slab()
    with control.activity.clock.phase("evaluate"), waiting(READER):
        beat = control.heartbeat(3)
    assert (beat.rank, beat.step, beat.progress) == (3, 2, 3)
    assert (beat.doing, beat.waiting_for) == ("evaluate", "reader")
    assert (control.heartbeat(3).doing, control.heartbeat(3).waiting_for) == ("other", "")
