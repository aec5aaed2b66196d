"""Weights reach a model whatever the placements and numbers of ranks on both sides."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from checkpoint_states import (
    MIXED,
    SCHEMA,
    SIZES,
    SPEC,
    fill,
    new_state,
    save_together,
    some_content,
)
from vocabulary_files import known

from distrain.errors import Unavailable
from distrain.models.embeddings import Peers
from distrain.models.embeddings.columns import table_places
from distrain.models.saved_model import model_tensors, save_model
from distrain.train.checkpoint import CheckpointDir, rank_store
from distrain.train.checkpoint.checkpoint_dir import name_of, prune
from distrain.train.checkpoint.manifest import Damaged
from distrain.train.data.vocabularies import Vocabularies
from distrain.train.warm_start import source as source_module
from distrain.train.warm_start.matching import Side, match
from distrain.train.warm_start.source import open_on_all_ranks, open_source
from distrain.train.warm_start.transfer import take_matched

WAYS = {
    "one": [("replicated",) * 5],
    "two, row-wise": [("row_wise",) * 5] * 2,
    "three, mixed": [MIXED] * 3,
    "cached": [("host_cached",) * 5],
    "two, replicated": [("replicated",) * 5] * 2,
}


def states_of(way, seed=0):
    placements = WAYS[way]
    return [
        new_state("adam", words, Peers(rank, len(placements)), seed)
        for rank, words in enumerate(placements)
    ]


@pytest.fixture(scope="module")
def content():
    return some_content(new_state(), 5)


def saved_place(folder, content):
    """A place with a checkpoint of step 7, and the state that it has."""
    (state,) = states_of("one")
    fill(state, content)
    place = CheckpointDir(str(folder / "place"))
    save_together(place, [state], step=7)
    return place, state


@pytest.fixture(scope="module")
def sources(tmp_path_factory, content):
    """The same weights as a saved model, and as checkpoints of several ways."""
    root = tmp_path_factory.mktemp("sources")
    (alone,) = states_of("one")
    fill(alone, content)
    save_model(root / "model", alone.model, SPEC, SCHEMA, about={"step": 7})
    for way in WAYS:
        states = states_of(way)
        for state in states:
            fill(state, content)
        save_together(CheckpointDir(str(root / way)), states, step=7)
    return root


def take(source, state, files=None, old_files=None, *, with_state=False):
    model = state.model
    tensors = state.tensors() if with_state else model_tensors(model)
    shapes = {n: tuple(t.shape) for n, t in tensors.items() if isinstance(t, torch.Tensor)}
    was = source.side
    if old_files:
        was = Side(was.columns, was.dense, Vocabularies(old_files))
    found = match(was, Side(model.embeddings.columns, shapes, Vocabularies(files or {})))
    assert found.problems == []
    return take_matched(source, found, tensors, lambda: None)[0]


def held(state):
    """What a rank holds of a model: tables by their place and rows, and dense tensors."""
    return {
        name: tensor.clone()
        if isinstance(tensor, torch.Tensor)
        else [run.values for run in vars(tensor)["runs"]]
        for name, tensor in model_tensors(state.model).items()
    }


def same(one, other):
    mine, its = held(one), held(other)
    for name in mine:
        pairs = zip(mine[name], its[name], strict=True)
        assert all(torch.equal(a, b) for a, b in pairs), name
    return True


@pytest.mark.parametrize("to", WAYS)
@pytest.mark.parametrize("which", ["model", *WAYS])
def test_equal_ids_reach_every_placement(sources, content, which, to):
    path = sources / which
    if which != "model":
        path = path / name_of(7, 1)
    source = open_source(str(path))
    assert source.step == 7
    for state, wanted in zip(states_of(to, seed=1), states_of(to), strict=True):
        fill(wanted, content)
        told = take(source, state)
        assert same(state, wanted)
        assert told.tables["a"] == {
            "columns": ["a"],
            "by": "id",
            "matched": 50,
            "fresh": 0,
            "dropped": 0,
        }


def test_all_ranks_take_the_checkpoint_that_rank_0_found(tmp_path, content, monkeypatch):
    place, state = saved_place(tmp_path, content)
    told = []

    def gather_texts(peers, device, text):
        if peers.rank == 0:
            told.append(text)
        return [told[-1]]

    monkeypatch.setattr(source_module, "gather_texts", gather_texts)
    monkeypatch.setattr(rank_store, "gather_texts", lambda peers, device, text: [text])
    device = torch.device("cpu")
    first = open_on_all_ranks(place.url, Peers(0, 2), device)
    save_together(place, [state], step=8)  # while the ranks look at the place
    second = open_on_all_ranks(place.url, Peers(1, 2), device)
    assert (first.step, second.step) == (7, 7)
    assert first.path == second.path
    assert open_source(place.url).step == 8


def test_a_checkpoint_that_is_removed_meanwhile_is_not_damaged(tmp_path, content, wording):
    place, state = saved_place(tmp_path, content)
    source = open_source(place.url)
    save_together(place, [state], step=8)
    prune(place, name_of(8, 1), keep=1, best_step=None)
    (fresh,) = states_of("one", seed=1)
    wording.refused(Unavailable, lambda: take(source, fresh))


def test_ranks_read_only_pieces_of_which_they_hold_rows(sources):
    source = open_source(str(sources / "two, row-wise" / name_of(7, 1)))
    read = []

    class Counting:
        def read(self, receivers, rank, after_slab, own):
            noting = {name: [Noting(name, *found)] for name, found in receivers.items()}
            return source.weights.read(noting, rank, after_slab, own)

    class Noting:
        def __init__(self, name, first, *others):
            self.name, self.receivers, self.device = name, (first, *others), first.device

        def wants(self, rows):
            return any(receiver.wants(rows) for receiver in self.receivers)

        def take(self, rows, values):
            read.append((self.name, rows))
            for receiver in self.receivers:
                receiver.take(rows, values)

    take(replace(source, weights=Counting()), states_of("two, row-wise")[1])
    tables = [rows for name, rows in read if name.startswith("embeddings.")]
    assert tables
    assert all(rows.stride == 2 for rows in tables)
    everything = sum(SIZES[name][0] for name in SIZES)
    assert sum(rows.count for rows in tables) <= everything // 2 + len(SIZES)


@pytest.mark.parametrize("to", ["one", "two, row-wise", "cached"])
@pytest.mark.parametrize("which", ["model", "three, mixed"])
def test_rows_follow_their_values(sources, content, tmp_path, which, to):
    rng = np.random.default_rng(3)
    values = {"a": rng.permutation(100)[:47], "e": rng.permutation(500)[:297]}
    now = {"a": rng.permutation(100)[:47], "e": rng.permutation(500)[:297]}
    old_files, files = {}, {}
    for column in values:
        old_files |= known(tmp_path / "old", column, values[column].tolist())
        files |= known(tmp_path / "new", column, now[column].tolist())
    source = open_source(str(sources / which))
    places = {place.name: place for place in table_places(source.side.columns)}
    for state, wanted in zip(states_of(to, seed=1), states_of(to, seed=1), strict=True):
        told = take(source, state, files, old_files)
        naive = {name: tensor.clone() for name, tensor in content.items()}
        fresh = some_fresh(wanted)
        for column in values:
            place = places[column]
            rows = {v: i + 3 for i, v in enumerate(values[column].tolist())}
            here = slice(place.first, place.first + place.cardinality)
            table = fresh[place.tensor][here].clone()
            table[:3] = content[place.tensor][here][:3]
            matched = 3
            for i, value in enumerate(now[column].tolist()):
                if value in rows:
                    table[i + 3] = content[place.tensor][here][rows[value]]
                    matched += 1
            naive[place.tensor][here] = table
            assert told.tables[column]["by"] == "value"
            assert told.tables[column]["matched"] == matched
            assert told.tables[column]["fresh"] == place.cardinality - matched
            assert told.tables[column]["dropped"] == place.cardinality - matched
        fill(wanted, naive)
        assert same(state, wanted)


@pytest.mark.parametrize("to", ["one", "two, row-wise", "cached"])
def test_the_state_of_rows_follows_their_values_too(sources, content, tmp_path, to):
    old, new = list(range(47)), list(range(100, 120)) + list(range(27))
    old_files, files = known(tmp_path / "old", "a", old), known(tmp_path / "new", "a", new)
    source = open_source(str(sources / "three, mixed"), with_state=True)
    (place,) = (one for one in table_places(source.side.columns) if one.name == "a")
    group = place.tensor.rpartition(".")[2]
    names = [name for name in content if name.startswith(f"sparse_optimizer.{group}.")]
    assert names
    for state in states_of(to, seed=1):
        take(source, state, files, old_files, with_state=True)
        tensors = state.tensors()
        for name, tensor in tensors.items():
            if isinstance(tensor, torch.Tensor):
                assert torch.equal(tensor, content[name]), name
        for name in names:
            wanted = content[name].clone()
            here = wanted[place.first : place.first + place.cardinality]
            here[23:] = here[3 : 3 + 27].clone()  # after padding and the like, and 20 new values
            here[3:23] = 0.0
            for run in vars(tensors[name])["runs"]:
                rows = torch.arange(run.start, run.stop)
                mine, local = run.store.local_rows_of(rows - run.start + run.first_key)
                assert torch.equal(run.values[local], wanted[rows[mine]])


def some_fresh(state):
    """Initial values of a seed, which no placement shows in: those of a rank that has all."""
    (alone,) = states_of("one", seed=1)
    return {
        name: tensor.read(slice(0, tensor.shape[0])).clone()
        for name, tensor in model_tensors(alone.model).items()
        if not isinstance(tensor, torch.Tensor)
    }


def test_damage_is_found_while_reading(sources, tmp_path, content, wording):
    place, _ = saved_place(tmp_path, content)
    (shard,) = (tmp_path / "place").glob("*/rank-0*")
    bytes_of = bytearray(shard.read_bytes())
    manifest = place.read_manifest(name_of(7, 1))
    offset = next(p[4] for p in manifest["files"][0]["pieces"] if p[0] == "embeddings.weights.1")
    bytes_of[offset] ^= 1
    shard.write_bytes(bytes_of)
    (fresh,) = states_of("one", seed=1)
    wording.refused(Damaged, lambda: take(open_source(str(tmp_path / "place")), fresh))
