"""A place of checkpoints is one run's."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from checkpoint_states import new_state, save_together
from hypothesis import given, settings, strategies as st
from other_user import unprivileged
from wording import Wording

from distrain.errors import DistrainError, OutputError, SpecError, Unavailable
from distrain.jobs.run_paths import RunPaths
from distrain.models.embeddings import Peers
from distrain.storage.folder import _LocalFolder
from distrain.train.checkpoint import CheckpointDir
from distrain.train.checkpoint.ownership import (
    check_owner,
    claim_dir,
    claim_on_all_ranks,
    release_dir,
)

NAME = "step-0000000001-a1"


@pytest.fixture
def url(tmp_path: Path) -> str:
    return str(tmp_path / "deep" / "states")


def place_of(url: str, run: str) -> CheckpointDir:
    return CheckpointDir(url, run)


def save(place: CheckpointDir, **options: object) -> None:
    told, reports = save_together(place, [new_state("sgd")], **options)
    assert told == [True], reports


def test_another_run_is_refused_in_words_that_help(url: str) -> None:
    claim_dir(place_of(url, "first"), "/runs/first")
    save(place_of(url, "first"))
    before = sorted(Path(url).rglob("*"))
    for ask in (check_owner, lambda place: claim_dir(place, "/runs/second")):
        with pytest.raises(SpecError) as caught:
            ask(place_of(url, "second"))
        text = str(caught.value)
        assert "checkpoint.dir belongs to the run first\n" in text
        assert f"location: {url}\n" in text
        assert f"its claim: {url}/run-first.json" in text
        assert "distrain train --resume /runs/first." in text
        assert f"--set train.init_from={url}/{NAME} " in text
        assert f"--set 'checkpoint.dir={url}/{{run_id}}'" in text
    assert sorted(Path(url).rglob("*")) == before, "the other run leaves nothing behind"


def test_a_claim_without_checkpoints_ends_with_its_run(url: str, tmp_path: Path) -> None:
    """As a service's job leaves it: what submitted it may not be able to reach the directory."""
    paths = RunPaths(tmp_path / "first")
    paths.root.mkdir()
    claim_dir(place_of(url, "first"), str(paths.root))

    def refused() -> None:
        for ask in (check_owner, lambda place: claim_dir(place, "/runs/second")):
            with pytest.raises(SpecError, match="the run first"):
                ask(place_of(url, "second"))

    refused()
    paths.summary.write_text('{"attempts": 1}')
    for told in ('{"job_id": "other"}', "{", "[]"):  # the directory may be another run's by now
        paths.run.write_text(told)
        refused()
    paths.run.write_text('{"job_id": "first"}')
    paths.records.mkdir()
    paths.attempt_records(2).write_text("")  # it goes on
    refused()
    paths.attempt_records(2).unlink()
    check_owner(place_of(url, "second"))
    assert [path.name for path in Path(url).iterdir()] == ["run-first.json"]
    claim_dir(place_of(url, "second"), "/runs/second")
    assert [path.name for path in Path(url).iterdir()] == ["run-second.json"]


def test_checkpoints_without_a_claim_keep_others_out(url: str, wording: Wording) -> None:
    save(place_of(url, "first"))
    wording.refused(SpecError, lambda: claim_dir(place_of(url, "second"), "/runs/second"))
    claim_dir(place_of(url, "first"), "/runs/first")


def test_a_place_without_checkpoints_can_be_given_away(url: str, wording: Wording) -> None:
    first = place_of(url, "first")
    claim_dir(first, "/runs/first")
    release_dir(first)
    claim_dir(place_of(url, "second"), "/runs/second")
    release_dir(first)  # not the other's
    wording.refused(SpecError, lambda: check_owner(first))
    save(place_of(url, "second"))
    release_dir(place_of(url, "second"))
    wording.refused(SpecError, lambda: check_owner(first))


@pytest.mark.parametrize("run", ["first", "a/b c%", "run-x.json", "ü"])
def test_the_same_run_comes_back(url: str, run: str) -> None:
    for run_dir in ("/runs/first", "/moved/first"):
        claim_dir(place_of(url, run), run_dir)
        check_owner(place_of(url, run))
    (claim,) = Path(url).iterdir()
    assert json.loads(claim.read_text()) == {"run": run, "run_dir": "/moved/first"}
    with pytest.raises(SpecError, match="--resume /moved/first"):
        check_owner(place_of(url, "other"))


def test_checkpoints_that_name_no_run_keep_others_out(url: str, wording: Wording) -> None:
    save(CheckpointDir(url))
    wording.refused(SpecError, lambda: check_owner(place_of(url, "new")))
    assert place_of(url, "new").list() == []


def test_nobody_lists_or_removes_what_is_anothers(url: str) -> None:
    save(place_of(url, "first"), step=1)
    save(place_of(url, "first"), step=2)
    half = Path(url, "step-0000000003-a1")
    half.mkdir()
    second = place_of(url, "second")
    save(second, step=9, attempt=4, keep=1)
    assert [entry.step for entry in second.list()] == [9]
    assert [entry.step for entry in place_of(url, "first").list()] == [2, 1]
    assert [entry.run for entry in CheckpointDir(url).list()] == ["second", "first", "first"]
    assert half.exists()


class Turns:
    """Two threads whose calls to the filesystem come in the order of a schedule."""

    def __init__(self, schedule: list[bool]):
        self._schedule = list(schedule)
        self._changed = threading.Condition()
        self._ended: set[bool] = set()
        self.me = threading.local()

    def take(self) -> None:
        me = self.me.number
        with self._changed:
            assert self._changed.wait_for(lambda: self._is_turn(me), 20)
            if self._schedule:
                self._schedule.pop(0)
            self._changed.notify_all()

    def _is_turn(self, me: bool) -> bool:
        return not self._schedule or self._schedule[0] == me or (not me) in self._ended

    def end(self) -> None:
        with self._changed:
            self._ended.add(self.me.number)
            self._changed.notify_all()


@settings(max_examples=30, deadline=None)
@given(schedule=st.lists(st.booleans(), min_size=20, max_size=20))
def test_of_two_that_begin_at_once_at_most_one_has_the_place(
    memory_folder: Path, schedule: list[bool]
) -> None:
    url = str(memory_folder / f"place-{len(list(memory_folder.iterdir()))}")
    turns, outcomes = Turns(schedule), {}

    def in_turn(name):
        original = getattr(_LocalFolder, name)

        def call(folder, *arguments):
            turns.take()
            return original(folder, *arguments)

        return call

    def claim(number: bool) -> None:
        turns.me.number = number
        try:
            claim_dir(place_of(url, f"run-{number}"), "/runs")
            outcomes[number] = "has it"
        except SpecError as error:
            outcomes[number] = error.message
        finally:
            turns.end()

    with pytest.MonkeyPatch.context() as patch:
        for name in ("files", "folders", "put", "delete"):
            patch.setattr(_LocalFolder, name, in_turn(name))
        with ThreadPoolExecutor(2) as threads:
            list(threads.map(claim, (True, False)))
    assert len(outcomes) == 2
    owners = [number for number, outcome in outcomes.items() if outcome == "has it"]
    assert len(owners) <= 1, "two runs would write there"
    claims = [path.name for path in Path(url).glob("run-*.json")]
    assert claims == [f"run-run-{number}.json" for number in owners]
    if owners:
        check_owner(place_of(url, f"run-{owners[0]}"))


def test_a_place_that_cannot_be_written_is_found_out(tmp_path: Path, wording: Wording) -> None:
    def ask(url: str) -> None:
        claim_dir(place_of(url, "first"), "/runs/first")

    (tmp_path / "file").write_text("x")
    wording.refused(OutputError, lambda: ask(str(tmp_path / "file" / "states")))
    with unprivileged() as folder:
        (folder / "theirs").mkdir(mode=0o500)
        for place in (folder / "theirs", folder / "theirs" / "deep" / "states"):
            with pytest.raises(OutputError, match="Permission denied"):
                ask(str(place))
        assert list((folder / "theirs").iterdir()) == []


def test_what_may_pass_is_not_held_against_a_place(url: str, monkeypatch, wording: Wording) -> None:
    monkeypatch.setattr(_LocalFolder, "put", Mock(side_effect=OSError("the server is busy")))
    wording.refused(Unavailable, lambda: claim_dir(place_of(url, "first"), "/runs/first"))


def test_a_later_attempt_is_told_and_goes_on(tmp_path: Path, wording: Wording) -> None:
    (tmp_path / "file").write_text("x")
    place = place_of(str(tmp_path / "file" / "states"), "first")
    device, told = torch.device("cpu"), []
    with pytest.raises(DistrainError):
        claim_on_all_ranks(place, "/runs", Peers(), device)
    claim_on_all_ranks(place, "/runs", Peers(), device, told.append)
    (trouble,) = told
    assert "Not a directory" in trouble.message
    assert trouble.step is None, "no checkpoint is lost by it"
    # ... but never where another run is.
    mine = place_of(str(tmp_path / "states"), "first")
    claim_dir(mine, "/runs")
    wording.refused(
        SpecError,
        lambda: claim_on_all_ranks(
            place_of(mine.url, "second"), "/runs", Peers(), device, told.append
        ),
    )
