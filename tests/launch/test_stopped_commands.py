"""A command that is told to end, or cannot go on, says so to whoever looks at its job."""

import importlib
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from distrain.client.errors import NotFound
from distrain.errors import Terminated, on_sigterm
from distrain.jobs.job_view import JobView
from distrain.jobs.spec import parse_spec
from distrain.jobs.states import JobState
from distrain.launch.reporting import LoggedProgress
from distrain.launch.run import RunRequest, _run_to_end
from distrain.runs.open_run import open_run

SPEC = parse_spec({"data": {"train": "day_0"}, "model": {"kind": "mlp"}, "name": "clicks"})
CANCELLED = JobView("clicks-1", "clicks", JobState.CANCELLED, 1, 2)


class _Job:
    """A job whose submission, or the first look at it, is cut short."""

    def __init__(self, cut: Callable[[], None], when: str):
        self._cut, self._when = cut, when
        self.why: list[str] = []

    def submit(self, *_: object, on_submitting: Callable[[], object]) -> bool:
        on_submitting()
        if self._when != "watched":
            self._cut()
        return True

    def cancel(self, why: str = "") -> None:
        if self._when == "not submitted":
            raise NotFound("no such job")
        self.why.append(why)

    def watch(self, on_view: object, since: int = 0) -> JobView:
        if not self.why:
            self._cut()
        return CANCELLED


def run_cut_short(
    number: int, when: str, root: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[JobView, list[str]]:
    def cut() -> None:
        os.kill(os.getpid(), number)
        signal.sigtimedwait([], 10)  # Python runs the handler before this returns
        raise AssertionError("no signal came")

    job = _Job(cut, when)

    @contextmanager
    def open_cluster(*_: object) -> Iterator[Any]:
        yield SimpleNamespace(dashboard_link="")

    monkeypatch.setattr("distrain.launch.run.open_cluster", open_cluster)
    monkeypatch.setattr("distrain.launch.run.JobHandle", lambda *_: job)
    with open_run(root, SPEC, "clicks-1"):
        run = RunRequest(SPEC, root, "clicks-1", scheduler="tcp://there:1")
        return _run_to_end(run, LoggedProgress(), lambda _: None), job.why


@pytest.mark.parametrize(
    ("number", "told"), [(signal.SIGTERM, "received SIGTERM"), (signal.SIGINT, "received Ctrl-C")]
)
@pytest.mark.parametrize("when", ["submitted", "watched"])
def test_a_signal_cancels_what_is_or_may_be_submitted_and_is_told_with_its_host(
    when: str, number: int, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    view, why = run_cut_short(number, when, tmp_path, monkeypatch)
    assert view == CANCELLED
    assert why == [f"the command that submitted it {told} on host {socket.gethostname()}"]


def test_a_signal_before_the_scheduler_has_the_job_is_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Terminated):
        run_cut_short(signal.SIGTERM, "not submitted", tmp_path, monkeypatch)


def test_a_sigterm_that_meets_an_import_is_raised_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ended_meanwhile.py").write_text(
        "import os, signal\nos.kill(os.getpid(), signal.SIGTERM)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with on_sigterm():
        importlib.import_module("ended_meanwhile")
        with pytest.raises(Terminated):
            threading.Event().wait(60)


def test_a_signal_in_a_function_of_ours_that_an_import_calls_is_raised_after_the_import(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in generated methods that a C extension calls while a module of ours is imported."""
    (tmp_path / "half_made.py").write_text("from made import method\nmethod()\nis_done = True\n")
    (tmp_path / "made.py").write_text(
        "import os, signal\n__name__ = 'distrain.made'\n"
        "def method():\n    os.kill(os.getpid(), signal.SIGTERM)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    command: dict[str, Any] = {"__name__": "distrain.command"}
    exec("def run():\n    import half_made\n    return half_made\n", command)
    with on_sigterm():
        assert command["run"]().is_done
        with pytest.raises(Terminated):
            threading.Event().wait(60)


class SignalledInFinaliser:
    def __init__(self, number: int):
        self.number = number

    def __del__(self) -> None:
        signal.raise_signal(self.number)


@pytest.mark.parametrize(
    ("number", "error"), [(signal.SIGTERM, Terminated), (signal.SIGINT, KeyboardInterrupt)]
)
def test_a_signal_that_meets_a_finaliser_is_raised_after_it(
    number: int, error: type[BaseException]
) -> None:
    before = sys.unraisablehook
    with on_sigterm():
        SignalledInFinaliser(number)
        with pytest.raises(error) as raised:
            threading.Event().wait(60)
    assert raised.type is error
    assert sys.unraisablehook is before
