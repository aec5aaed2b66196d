"""What is damaged is noticed, said, and not gone on from."""

import errno
import json
import os
import random
import shutil
from functools import partial
from pathlib import Path

import pytest
import torch
from checkpoint_states import fill, load_again, new_state, same_values, save_together, some_content

from distrain.errors import Unavailable
from distrain.models.embeddings import Peers
from distrain.storage.folder import open_folder
from distrain.train.checkpoint import CheckpointDir
from distrain.train.checkpoint.manifest import DAMAGED_FILE, MANIFEST_FILE
from distrain.train.checkpoint.shard_reading import ShardReading

MIXED = ("row_wise", "replicated", "replicated", "row_wise", "row_wise")
OLD, NEW = "step-0000000001-a1", "step-0000000002-a1"
SHARD = "rank-1-of-2.safetensors"


@pytest.fixture(scope="module")
def two_checkpoints(memory_folder):
    """A folder with two checkpoints of 2 ranks, and what they hold."""
    folder = memory_folder / "two"
    contents = []
    for step in (1, 2):
        contents.append(some_content(new_state("adagrad"), step))
        states = [new_state("adagrad", MIXED, Peers(rank, 2)) for rank in (0, 1)]
        for state in states:
            fill(state, contents[-1])
        own = [{"rng": torch.tensor([step, rank])} for rank in (0, 1)]
        told, _ = save_together(CheckpointDir(str(folder)), states, own, step=step)
        assert told == [True, True]
    return folder, contents


@pytest.fixture
def place(two_checkpoints, memory_folder):
    """A copy of them to spoil."""
    copy = memory_folder / "copy"
    shutil.copytree(two_checkpoints[0], copy)
    yield CheckpointDir(str(copy))
    shutil.rmtree(copy)


def holds(state, content):
    expected = new_state("adagrad")
    fill(expected, content)
    return same_values(state, expected)


def flip(file, offset):
    content = bytearray(file.read_bytes())
    content[offset] ^= 4
    file.write_bytes(content)


@pytest.mark.parametrize("file", [MANIFEST_FILE, SHARD, "rank-0-of-2.safetensors"])
def test_any_flipped_byte_is_noticed(place, two_checkpoints, file):
    folder, contents = two_checkpoints
    path = folder / NEW / file
    whole = path.read_bytes()
    generator = random.Random(file)
    header_bytes = 8 + int.from_bytes(whole[:8], "little")
    places = [0, 7, 8, len(whole) - 1]
    if file != MANIFEST_FILE:
        places += [header_bytes - 1, header_bytes]
        places += generator.sample(range(header_bytes), 5)
    places += generator.sample(range(len(whole)), 15)
    for offset in places:
        spoiled = Path(place.url, NEW) / file
        spoiled.write_bytes(whole)
        flip(spoiled, offset)
        loaded, state, told = load_again(place)
        assert loaded.entry.name == OLD, offset
        assert holds(state, contents[0]), offset
        assert len(told) == 1, offset
        assert NEW in told[0].message, told
        assert file in told[0].message or file == MANIFEST_FILE, told
        aside = spoiled.with_name(DAMAGED_FILE)
        if aside.exists():
            aside.rename(spoiled.with_name(MANIFEST_FILE))


@pytest.mark.parametrize("how", ["missing", "shorter", "longer", "empty", "another checkpoint's"])
def test_files_that_are_not_whole(place, two_checkpoints, how):
    loaded, state, told = load_again(place)
    assert (loaded.entry.name, loaded.entry.step, told) == (NEW, 2, [])
    assert holds(state, two_checkpoints[1][1])
    assert [own["rng"].tolist() for own in loaded.rank_tensors.values()] == [[2, 0], [2, 1]]
    file = Path(place.url, NEW) / SHARD
    whole, older = file.read_bytes(), (Path(place.url, OLD) / SHARD).read_bytes()
    spoilt = {"shorter": whole[:-1], "longer": whole + b"x", "empty": b""}
    if how == "missing":
        file.unlink()
    else:
        file.write_bytes(spoilt.get(how, older))
    loaded, state, told = load_again(place)
    assert loaded.entry.name == OLD
    assert holds(state, two_checkpoints[1][0])
    assert len(told) == 1
    assert SHARD in told[0].message


@pytest.mark.parametrize("places", [(3,), (-1, -1)], ids=["header", "data"])
def test_without_a_usable_one_it_is_told_whether_the_state_was_overwritten(place, places):
    """Damage of a header is noticed before anything is read."""
    for name, offset in zip((NEW, OLD), places, strict=False):
        flip(Path(place.url, name) / SHARD, offset)
    if len(places) == 1:
        shutil.rmtree(Path(place.url, OLD))
    loaded, _, told = load_again(place)
    assert (loaded.entry, loaded.touched, len(told)) == (None, len(places) > 1, len(places))


def test_what_was_found_damaged_is_never_tried_again(place):
    flip(Path(place.url, NEW) / SHARD, -1)
    assert [entry.name for entry in place.list()] == [NEW, OLD]
    assert load_again(place)[0].entry.name == OLD
    assert [entry.name for entry in place.list()] == [OLD]
    assert place.damaged == [f"the checkpoint {place.url}/{NEW} was set aside as damaged"]
    assert (Path(place.url, NEW) / DAMAGED_FILE).exists()
    # ... and goes when the next one is whole.
    save_together(place, [new_state("adagrad")], step=3)
    assert not Path(place.url, NEW).exists()
    assert [entry.step for entry in place.list()] == [3, 1]


def test_a_folder_without_a_manifest_is_no_checkpoint(place):
    (Path(place.url, NEW) / MANIFEST_FILE).unlink()
    assert [entry.name for entry in place.list()] == [OLD]
    assert place.damaged == [f"the checkpoint {place.url}/{NEW} was never finished"]
    loaded, _, told = load_again(place)
    assert loaded.entry.name == OLD
    assert [trouble.message for trouble in told] == place.damaged


def test_a_manifest_of_another_checkpoint_or_version(place):
    old, new = (Path(place.url, name) / MANIFEST_FILE for name in (OLD, NEW))
    shutil.copy(old, new)
    assert [entry.name for entry in place.list()] == [OLD]
    assert "its manifest is that of step 1, attempt 1" in place.damaged[0]
    new.write_text(json.dumps(json.loads(old.read_text()) | {"format": 3}))
    assert [entry.name for entry in place.list()] == [OLD]
    assert "saved in format 3" in place.damaged[0]
    save_together(place, [new_state("adagrad")], step=3)
    assert new.exists(), "what another version can read is left alone"
    new.write_text("[1]")
    place.list()
    assert "not the manifest of a checkpoint" in place.damaged[0]


def test_a_later_attempt_is_the_history_that_counts(place):
    save_together(place, [new_state("adagrad")], step=1, attempt=2)
    assert [(entry.attempt, entry.step) for entry in place.list()] == [(2, 1), (1, 2), (1, 1)]


def test_a_place_that_cannot_be_looked_at_is_not_an_empty_one(tmp_path, wording):
    (tmp_path / "file").write_text("x")
    for url in (str(tmp_path / "file"), "nosuch://bucket/run"):
        wording.refused(Unavailable, partial(CheckpointDir(url).list))
        wording.refused(Unavailable, partial(load_again, CheckpointDir(url)))
    assert CheckpointDir(str(tmp_path / "missing")).list() == []


def failing_reads(monkeypatch, error):
    """Have the newest's second file fail when it is read."""
    original = type(open_folder("/")).reader

    def reader(folder, name):
        if name == SHARD and NEW in folder.url:
            raise error
        return original(folder, name)

    monkeypatch.setattr(type(open_folder("/")), "reader", reader)


def test_a_disk_that_lost_a_sector_is_damage(place, two_checkpoints, monkeypatch):
    failing_reads(monkeypatch, OSError(errno.EIO, "Input/output error"))
    loaded, state, told = load_again(place)
    assert loaded.entry.name == OLD
    assert holds(state, two_checkpoints[1][0])
    assert "Input/output error" in told[0].message


def test_what_may_pass_is_no_damage(place, monkeypatch, wording):
    failing_reads(monkeypatch, OSError(errno.ESTALE, "Stale file handle"))
    wording.refused(Unavailable, lambda: load_again(place))
    assert [entry.name for entry in place.list()] == [NEW, OLD]


def test_a_file_that_shrinks_after_it_was_looked_at(place, monkeypatch):
    original = ShardReading.run

    def run(reading):
        if NEW in reading._folder.url:
            os.truncate(Path(place.url, NEW) / SHARD, 5000)
        return original(reading)

    monkeypatch.setattr(ShardReading, "run", run)
    loaded, _, told = load_again(place)
    assert loaded.entry.name == OLD
    assert "it ends too early" in told[0].message
    assert SHARD in told[0].message
