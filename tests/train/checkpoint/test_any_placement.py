"""Saved from any placement on any number of ranks, loaded into any other: the same bits.

The ranks are objects of one process here, which exchange nothing; `train/loop/test_resume.py` has
gangs.
"""

import tempfile

import pytest
import torch
from checkpoint_states import (
    SCHEMA,
    SHARED_TABLE,
    fill,
    new_state,
    read_all,
    same_values,
    save_together,
    some_content,
)
from hypothesis import given, settings, strategies as st

from distrain.models.embeddings import Peers
from distrain.models.embeddings.columns import PLACEMENTS
from distrain.storage.folder import open_folder
from distrain.train.checkpoint import (
    CheckpointDir,
    local_rows,
    shard as shard_module,
    shard_reading,
)
from distrain.train.checkpoint.manifest import from_document
from distrain.train.checkpoint.shard_reading import ShardReading, receivers_of

placements = st.lists(st.sampled_from(sorted(PLACEMENTS)), min_size=5, max_size=5)
gangs = st.tuples(st.sampled_from([1, 2, 3, 4, 6]), placements)


def states_of(gang, kind, content=None, schema=SCHEMA):
    num_ranks, words = gang
    if schema is SHARED_TABLE:
        words = [*words[:-1], words[0]]
    states = [
        new_state(kind, words, Peers(rank, num_ranks), rank, schema=schema)
        for rank in range(num_ranks)
    ]
    for state in states if content else ():
        fill(state, content)
    return states


@pytest.mark.slow
@settings(max_examples=12, deadline=None)
@given(
    saving=gangs,
    loading=gangs,
    kind=st.sampled_from(["sgd", "adagrad", "rowwise_adagrad", "adam"]),
    slab_bytes=st.sampled_from([1, 70, 170, 4000, 1 << 20]),
    small_bytes=st.sampled_from([1, 300, 1 << 20]),
    behind=st.booleans(),
    schema=st.sampled_from([SCHEMA, SHARED_TABLE]),
)
def test_the_same_bits(
    memory_folder, saving, loading, kind, slab_bytes, small_bytes, behind, schema
):
    place = CheckpointDir(tempfile.mkdtemp(dir=memory_folder))
    content = some_content(new_state(kind, schema=schema), seed=slab_bytes)
    # Tables of width 4: b with 3 rows, and a with e, or each its own.
    assert len(content["embeddings.weights.1"]) == (353 if schema is SCHEMA else 303)
    num_saving, num_loading = saving[0], loading[0]
    own = [
        {"rank": torch.tensor(rank), "rows": torch.arange(rank), "no": torch.tensor([True])}
        for rank in range(num_saving)
    ]
    patches = {
        local_rows: "SMALL_BYTES",
        shard_module: "SLAB_BYTES",
        shard_reading: "SLAB_BYTES",
    }
    before = {module: getattr(module, name) for module, name in patches.items()}
    try:
        for module, name in patches.items():
            setattr(module, name, small_bytes if name == "SMALL_BYTES" else slab_bytes)
        savers = states_of(saving, kind, content, schema)
        savers[0].sparse_optimizer.num_steps = 7
        told, reports = save_together(place, savers, own, wait=not behind)
        assert told == [True] * num_saving, reports
        loaders = states_of(loading, kind, schema=schema)
        given_back = read_all(place, place.list()[0].name, loaders)
    finally:
        for module, name in patches.items():
            setattr(module, name, before[module])
    expected = states_of(loading, kind, content, schema)
    for state, wanted in zip(loaders, expected, strict=True):
        wanted.sparse_optimizer.num_steps = 7
        assert same_values(state, wanted)
    # Each rank that loads has its share of them, and none is anybody else's.
    for rank, tensors in enumerate(given_back):
        assert list(tensors) == list(range(rank, num_saving, num_loading))
    found = {number: tensors for share in given_back for number, tensors in share.items()}
    assert [{k: v.tolist() for k, v in found[number].items()} for number in sorted(found)] == [
        {k: v.tolist() for k, v in one.items()} for one in own
    ]


def test_a_rank_of_a_row_wise_table_reads_its_own_file_alone(tmp_path):
    """With as many ranks as before; rows that are dealt anew lie in all files."""
    place = CheckpointDir(str(tmp_path))
    content = some_content(new_state("sgd"), seed=1)
    save_together(place, states_of((4, ["row_wise"] * 5), "sgd", content))
    name = place.list()[0].name
    for num_ranks, files in [(4, {0, 3}), (2, {0, 1, 2, 3})]:
        states = states_of((num_ranks, ["row_wise"] * 5), "sgd")
        manifest = from_document(place.read_manifest(name))
        folder = open_folder(place.url).sub(name)
        rank = num_ranks - 1
        reading = ShardReading(
            folder, manifest, receivers_of(states[rank].tensors()), rank, lambda: None
        )
        # Rank 0's holds the dense part.
        needed = {int(shard.file.split("-")[1]) for shard, needs in reading._plan if needs}
        assert needed == files


def test_files_are_what_the_safetensors_library_reads(tmp_path):
    from safetensors.torch import load_file

    place = CheckpointDir(str(tmp_path))
    state = new_state("adam", dtype=torch.bfloat16)
    save_together(place, [state], [{"rng": torch.tensor([3], dtype=torch.uint8)}])
    saved = load_file(tmp_path / place.list()[0].name / "rank-0-of-1.safetensors")
    tables = [state.model.embeddings.table(name) for name in ("a", "b", "e")]
    assert torch.equal(saved["embeddings.weights.1[0:353:1]"], torch.cat(tables))
    assert saved["embeddings.weights.1[0:353:1]"].dtype == torch.bfloat16
    assert saved["rank.rng"].tolist() == [3]
    assert "dense_optimizer.towers" not in saved
