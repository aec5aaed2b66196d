"""The writer on one rank, and among ranks that are threads of this process."""

import errno
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from checkpoint_states import (
    MIXED,
    fill,
    new_state,
    same_values,
    save_together,
    some_content,
)
from small_disks import mounted
from synced_files import synced_and_renamed
from torch.distributed import HashStore

from distrain.jobs.events import CheckpointSaved, CheckpointTrouble
from distrain.models.embeddings import Peers
from distrain.storage.folder import _LocalFolder
from distrain.train.checkpoint import (
    CheckpointDir,
    CheckpointWriter,
    RankStore,
    load_newest,
    shard as shard_module,
    writer as writer_module,
)
from distrain.train.checkpoint.local_rows import rows_to_write


class Slow:
    """A place whose files wait, when they are opened for writing, until they may go on."""

    def __init__(self, monkeypatch):
        self.reached = threading.Event()
        self.go_on = threading.Event()
        original = shard_module.write_shard

        def write_shard(*arguments):
            self.reached.set()
            assert self.go_on.wait(120)
            return original(*arguments)

        monkeypatch.setattr("distrain.train.checkpoint.checkpoint_write.write_shard", write_shard)


@pytest.fixture
def place(tmp_path):
    return CheckpointDir(str(tmp_path / "deep" / "checkpoints"))


@pytest.fixture
def reports():
    return []


@pytest.fixture
def make_writer(place, reports):
    """Makes writers of a rank alone, and closes them."""
    made = []

    def make(state, board=None, peers=None, **options):
        options = {"keep": 3, "report": reports.append} | options
        writer = CheckpointWriter(place, state, peers or Peers(), board or RankStore(), **options)
        made.append(writer)
        return writer

    yield make
    for writer in made:
        writer.close()


def filled_state(seed, kind="adagrad"):
    state = new_state(kind)
    content = some_content(state, seed)
    fill(state, content)
    return state, content


def loaded_equals(place, content):
    state, expected = new_state("adagrad", seed=3), new_state("adagrad")
    fill(expected, content)
    return load_newest(place, state, Peers()).entry is not None and same_values(state, expected)


def test_what_is_told_of_a_checkpoint(place, make_writer, reports):
    state, _ = filled_state(1)
    saved = make_writer(state, asynchronous=False).save(7, 2, {"epoch": 1}, {}, 0.75)
    assert saved.whole is True
    (entry,) = place.list()
    assert (entry.name, entry.step, entry.attempt) == ("step-0000000007-a2", 7, 2)
    assert (entry.values, entry.auc) == ({"epoch": 1}, 0.75)
    files = [file for file in Path(entry.url).iterdir() if file.name != "manifest.json"]
    assert entry.size_bytes == sum(file.stat().st_size for file in files)
    (report,) = reports
    assert isinstance(report, CheckpointSaved)
    assert (report.step, report.path, report.auc) == (7, entry.url, 0.75)
    assert report.size_bytes == entry.size_bytes
    assert 0 < report.write_s <= report.stood_still_s <= saved.stood_still_s


def test_tensors_may_change_as_soon_as_save_returns(place, make_writer, monkeypatch, reports):
    slow = Slow(monkeypatch)
    state, content = filled_state(1)
    writer = make_writer(state)
    values, own = {"list": [1]}, {"rng": torch.tensor([1, 2])}
    saved = writer.save(1, 1, values, own)
    assert saved.whole is None
    fill(state, some_content(state, 2))
    state.sparse_optimizer.num_steps = 99
    values["list"].append(2)
    own["rng"].zero_()
    assert slow.reached.wait(120)
    assert writer.wait(0.0) is None
    assert place.list() == []
    slow.go_on.set()
    assert writer.wait() is True
    assert loaded_equals(place, content)
    loaded = load_newest(place, new_state("adagrad"), Peers())
    assert loaded.values == {"list": [1]}
    assert loaded.rank_tensors[0]["rng"].tolist() == [1, 2]
    assert reports[0].stood_still_s == saved.stood_still_s  # known before anything was written


@pytest.mark.slow
def test_the_second_waits_for_the_first(place, make_writer, monkeypatch):
    slow = Slow(monkeypatch)
    state, _ = filled_state(1)
    writer = make_writer(state)
    writer.save(1, 1, {}, {})
    content = some_content(state, 2)
    fill(state, content)
    threading.Timer(0.2, slow.go_on.set).start()  # however late: the writer waits for it
    second = writer.save(2, 1, {}, {})
    assert second.stood_still_s > 0.15, "waiting counts as standing still"
    assert writer.wait() is True
    assert [entry.step for entry in place.list()] == [2, 1]
    assert loaded_equals(place, content)


def test_old_ones_go_and_the_best_stays(place, make_writer):
    state, _ = filled_state(1)
    writer = make_writer(state, keep=2)
    for step, auc in enumerate([0.6, 0.8, 0.7, float("nan"), None], 1):
        writer.save(step, 1, {}, {}, auc, best_step=min(step, 2))
    writer.wait()
    assert [(entry.step, entry.auc) for entry in place.list()] == [(5, None), (4, None), (2, 0.8)]
    assert len(list(Path(place.url).iterdir())) == 3


def test_leftovers_of_earlier_attempts_go(place, make_writer):
    # One of this attempt's later steps may be what another rank has begun to write.
    stay = ["step-0000000009-a3", "step-0000000011-a2"]
    for name in ("step-0000000009-a1", "step-0000000008-a2", *stay):
        half = Path(place.url, name)
        half.mkdir(parents=True)
        (half / "rank-0-of-2.safetensors").write_bytes(b"half")
    make_writer(filled_state(1)[0]).save(10, 2, {}, {}, wait=True)
    names = sorted(path.name for path in Path(place.url).iterdir())
    assert names == [stay[0], "step-0000000010-a2", stay[1]]


def trouble_of(reports):
    (report,) = reports
    assert isinstance(report, CheckpointTrouble)
    return report.message


def nothing_is_left(place):
    return place.list() == [] and place.damaged == []


@pytest.mark.parametrize("wait", [True, False])
def test_a_full_disk_is_told_and_training_goes_on(tmp_path, reports, wait):
    state, _ = filled_state(1)
    own = {"large": torch.ones(1 << 15)}
    with mounted(tmp_path / "disk", "size=100k") as disk:
        place = CheckpointDir(str(disk / "checkpoints"))
        writer = CheckpointWriter(place, state, Peers(), RankStore(), keep=2, report=reports.append)
        saved = writer.save(1, 1, {}, own, wait=wait)
        assert saved.whole is (False if wait else None)
        assert writer.wait() is False
        message = trouble_of(reports)
        assert "step-0000000001-a1 was not written: rank 0: " in message
        assert "No space left" in message
        assert nothing_is_left(place)
        assert list(Path(place.url).iterdir()) == []
        assert writer.save(2, 1, {}, {}, wait=True).whole is True, "this one has room"
        writer.close()


def two_ranks(kind="adagrad"):
    return [new_state(kind, MIXED, Peers(rank, 2)) for rank in (0, 1)]


@pytest.mark.parametrize("num_checkpoints", [1, 4])
def test_a_store_keeps_what_ranks_posted_of_the_last_checkpoint_alone(place, num_checkpoints):
    store, states = HashStore(), two_ranks()

    def save(rank):
        writer = CheckpointWriter(place, states[rank], Peers(rank, 2), RankStore(store), keep=1)
        for step in range(num_checkpoints):
            assert writer.save(step, 1, {}, {}, wait=True).whole
        writer.close()

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(save, (0, 1)))
    assert store.num_keys() == 2


def failed(path, written):
    raise OSError(5, "Input/output error")


def elsewhere(path, written):
    path.unlink()


def cut(path, written):
    os.truncate(path, written.size_bytes - 1)


@pytest.mark.parametrize("spoil", [failed, elsewhere, cut])
def test_a_rank_whose_file_is_not_whole_fails_it_for_all(place, monkeypatch, wording, spoil):
    monkeypatch.setattr("distrain.train.checkpoint.checkpoint_write._SEEN_WITHIN_S", 0.1)
    original = shard_module.write_shard

    def write_shard(folder, file, content, after_slab):
        written = original(folder, file, content, after_slab)
        if "rank-1" in file:
            spoil(Path(folder.url) / file, written)
        return written

    monkeypatch.setattr("distrain.train.checkpoint.checkpoint_write.write_shard", write_shard)
    told, reports = save_together(place, two_ranks())
    assert told == [False, False]
    assert reports[0].step == 1, "it counts as one that was lost"
    wording(trouble_of(reports))
    assert nothing_is_left(place)


class GoneBoard(RankStore):
    def read(self, key, timeout_s, given_up=None):
        raise RuntimeError("Connection reset by peer")


def no_rows(*whose):
    return rows_to_write(*whose)[1:]


@pytest.mark.parametrize("what", ["file for a folder", "board", "rows", "memory"])
def test_what_keeps_a_checkpoint_from_being_whole_is_told(
    tmp_path, place, make_writer, reports, monkeypatch, wording, what
):
    state, board, peers = new_state("adagrad"), None, None
    if what == "file for a folder":
        (tmp_path / "deep").write_text("")
    elif what == "board":
        state, board, peers = two_ranks()[0], GoneBoard(), Peers(0, 2)
    elif what == "rows":
        monkeypatch.setattr(writer_module, "rows_to_write", no_rows)
    else:
        no_memory = MemoryError("no host memory")
        monkeypatch.setattr(writer_module, "copied", Mock(side_effect=no_memory))
    writer = make_writer(state, board, peers)
    writer.save(1, 1, {}, {})
    assert writer.wait(120.0) is False
    wording(trouble_of(reports))
    assert what == "file for a folder" or nothing_is_left(place)


def test_a_file_that_rank_0_sees_late(place, monkeypatch):
    """As on shared filesystems that remember for a while what a folder holds."""
    original, asked = _LocalFolder.size, []

    def size(folder, name):
        asked.append(name)
        if "rank-1" in name and asked.count(name) < 3:
            raise FileNotFoundError(name)
        return original(folder, name)

    monkeypatch.setattr(_LocalFolder, "size", size)
    told, _ = save_together(place, two_ranks())
    assert told == [True, True]


@pytest.mark.parametrize("is_closed", [False, True])
def test_a_peer_that_never_comes_is_not_waited_for_for_ever(
    place, make_writer, reports, wording, is_closed
):
    patience_s = 120.0 if is_closed else 0.3
    writer = make_writer(two_ranks()[0], peers=Peers(0, 2), patience_s=patience_s)
    assert writer.save(1, 1, {}, {}).whole is None
    if is_closed:
        writer.close(1.0)
    assert writer.wait(0.0 if is_closed else 120.0) is False
    wording(trouble_of(reports))
    assert nothing_is_left(place)


def test_close_does_not_wait_for_a_disk_that_hangs(make_writer, monkeypatch):
    slow = Slow(monkeypatch)
    writer = make_writer(filled_state(1)[0])
    writer.save(1, 1, {}, {})
    assert slow.reached.wait(120)
    writer.close(0.01)
    assert writer.wait(0.0) is None, "it hangs still"
    slow.go_on.set()
    assert writer.wait() is True


def test_one_that_hangs_is_not_waited_for_for_ever(place, make_writer, reports, monkeypatch):
    slow = Slow(monkeypatch)
    writer = make_writer(filled_state(1)[0], patience_s=0.05)
    writer.save(1, 1, {}, {})
    assert slow.reached.wait(120)
    assert writer.save(2, 1, {}, {}).whole is False
    assert "step-0000000002-a1 was not written: rank 0: the one before was still" in trouble_of(
        reports
    )
    slow.go_on.set()
    writer._patience_s = 120.0
    assert writer.save(3, 1, {}, {}, wait=True).whole is True
    assert [entry.step for entry in place.list()] == [3, 1]


def test_old_ones_that_cannot_be_removed_are_told_of_and_none_any_more(
    place, make_writer, reports, monkeypatch
):
    """Their manifests go first: whatever is left of them is no checkpoint."""
    writer = make_writer(filled_state(1)[0], keep=1)
    assert writer.save(1, 1, {}, {}, wait=True).whole is True
    monkeypatch.setattr(
        "distrain.storage.folder.shutil.rmtree",
        Mock(side_effect=OSError(errno.EIO, "Input/output error")),
    )
    assert writer.save(2, 1, {}, {}, wait=True).whole is True
    trouble = reports[-1]
    assert isinstance(trouble, CheckpointTrouble)
    assert f"old checkpoints in {place.url} were not removed: " in trouble.message
    assert trouble.step is None, "none was lost"
    left = Path(place.url, "step-0000000001-a1")
    assert [path.name for path in left.iterdir()] == ["rank-0-of-1.safetensors"]
    assert [entry.step for entry in place.list()] == [2]


def test_each_file_is_on_the_disk_before_its_name_says_so(place, monkeypatch, tmp_path):
    """The manifest's name comes last, when all that it tells of would survive a loss of power."""
    done = synced_and_renamed(monkeypatch, tmp_path / "deep")
    told, _ = save_together(place, two_ranks())
    assert told == [True, True]
    folder = "checkpoints/step-0000000001-a1"
    shards = [f"{folder}/rank-{rank}-of-2.safetensors" for rank in (0, 1)]
    named = done.index(f"named {folder}/manifest.json")
    before = done[:named]
    for shard in shards:
        after_shard = before[before.index(f"synced {shard}") :]
        assert f"synced {folder}" in after_shard, "its name, too"
    assert before[-1] == f"synced {folder}/manifest.json"
    assert done[named + 1 :] == [f"synced {folder}", "synced checkpoints"]
