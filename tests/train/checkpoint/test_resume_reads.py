"""What a rank opens and reads to go on: its own, however many peers it has."""

from collections import Counter

import pytest
import torch
from checkpoint_states import new_state

from distrain.models.embeddings import Peers
from distrain.storage.folder import _LocalFolder, open_folder
from distrain.train.checkpoint import (
    CheckpointDir,
    load_newest,
    loading as loading_module,
    shard as shard_module,
)
from distrain.train.checkpoint.checkpoint_dir import name_of
from distrain.train.checkpoint.local_rows import local_rows_of, share_of
from distrain.train.checkpoint.manifest import MANIFEST_FILE, Manifest
from distrain.train.checkpoint.training_state import facts_of

OWN_BYTES = 1 << 13


def write_checkpoint(place, num_ranks):
    """What so many ranks would have written, without that many writers."""
    folder = place.folder(name_of(1, 1))
    folder.make()
    shards, first = [], None
    for rank in range(num_ranks):
        state = new_state("sgd", ("row_wise",) * 5, Peers(rank, num_ranks))
        first = first or state
        share = share_of(local_rows_of(state.tensors()), rank, num_ranks)
        own = {"metrics": torch.full((OWN_BYTES,), rank % 256, dtype=torch.uint8)}
        content = shard_module.content_of(share, own)
        file = shard_module.shard_file(rank, num_ranks)
        shards.append(shard_module.write_shard(folder, file, content, lambda: None))
    facts = facts_of(first.tensors())
    manifest = Manifest(1, 1, None, {}, first.facts(), facts, shards, "run")
    folder.put(MANIFEST_FILE, manifest.to_bytes())


@pytest.fixture
def counted(monkeypatch):
    """What is asked of the filesystem."""
    calls, read = Counter(), Counter()
    for name in ("folders", "files", "size", "read"):
        original = getattr(_LocalFolder, name)

        def call(folder, *arguments, original=original, name=name):
            calls[name] += 1
            return original(folder, *arguments)

        monkeypatch.setattr(_LocalFolder, name, call)
    original_reader = _LocalFolder.reader

    class Reader:
        def __init__(self, folder, name):
            self._within, self._name = original_reader(folder, name), name

        def __enter__(self):
            self._file = self._within.__enter__()
            calls["reader"] += 1
            return self

        def __exit__(self, *error):
            return self._within.__exit__(*error)

        def read_into(self, offset, target):
            count = self._file.read_into(offset, target)
            read[self._name] += count
            return count

    monkeypatch.setattr(_LocalFolder, "reader", lambda folder, name: Reader(folder, name))
    return calls, read


def load_as(rank, num_ranks, place, monkeypatch):
    """Load as one rank of so many, the others of which are not there."""
    peers = Peers(rank, num_ranks)
    # What rank 0 finds, and that all ranks succeed, is what they would tell each other.
    names = f'["{name_of(1, 1)}"]'
    monkeypatch.setattr(loading_module, "gather_texts", lambda peers, device, text: [text or names])
    monkeypatch.setattr(
        "distrain.train.checkpoint.rank_store.gather_texts", lambda peers, device, text: [text]
    )
    state = new_state("sgd", ("row_wise",) * 5, peers)
    return load_newest(place, state, peers)


def test_a_rank_reads_its_own_however_many_there_are(tmp_path, monkeypatch, counted):
    calls, read = counted
    costs = {}
    for num_ranks in (4, 16, 64):
        place = CheckpointDir(str(tmp_path / str(num_ranks)), "run")
        write_checkpoint(place, num_ranks)
        for rank in (0, 3):
            calls.clear()
            read.clear()
            loaded = load_as(rank, num_ranks, place, monkeypatch)
            assert loaded.entry.step == 1
            assert {r: t["metrics"].tolist()[0] for r, t in loaded.rank_tensors.items()} == {
                rank: rank
            }
            # Its own, and rank 0's for what is too small to be cut.
            assert set(read) == {f"rank-{r}-of-{num_ranks}.safetensors" for r in {0, rank}}
            costs[num_ranks, rank] = (dict(calls), sum(read.values()))
    for rank in (0, 3):
        few, some, many = (costs[num_ranks, rank] for num_ranks in (4, 16, 64))
        assert few[0] == some[0] == many[0], "as many calls of the filesystem"
        # Row-wise tables: the more ranks, the fewer rows. Headers take whole pages.
        assert many[1] <= some[1] <= few[1] < 6 * OWN_BYTES


def test_on_fewer_ranks_each_takes_its_share(tmp_path, monkeypatch, counted):
    _, read = counted
    place = CheckpointDir(str(tmp_path), "run")
    write_checkpoint(place, 16)
    for rank in range(4):
        read.clear()
        loaded = load_as(rank, 4, place, monkeypatch)
        assert list(loaded.rank_tensors) == [rank, rank + 4, rank + 8, rank + 12]
        # Rows of dealt tables lie in all files, the states of ranks in their own.
        own = {
            shard_module.shard_file(saved, 16) for saved in (rank, rank + 4, rank + 8, rank + 12)
        }
        assert {file for file, num_bytes in read.items() if num_bytes > OWN_BYTES} == own
        assert loaded.saved_by == 16


def test_the_guess_where_it_goes_on_reads_no_manifest(tmp_path, counted):
    place = CheckpointDir(str(tmp_path), "run")
    assert place.likely_newest() is None
    for step, attempt in [(1, 1), (9, 1), (4, 2), (5, 2)]:
        folder = open_folder(str(tmp_path)).sub(name_of(step, attempt))
        folder.make()
        if (step, attempt) != (5, 2):  # the newest was never finished
            folder.put(MANIFEST_FILE, b"never read")
    counted[0].clear()
    assert place.likely_newest() == (2, 4)
    assert counted[0] == {"folders": 1, "size": 2}
