"""A training that goes on from 4 ranks to 2 to 1 to 3, against one that nobody disturbed."""

from pathlib import Path

import pytest
import torch
from checkpoint_states import SCHEMA, SPEC, new_state, read_all, same_values
from gloo_ranks import on_ranks
from loaded_scripts import load_script

from distrain.models import load_model
from distrain.models.embeddings import Peers
from distrain.models.saved_model import save_model
from distrain.train.checkpoint import CheckpointDir, CheckpointWriter, RankStore
from distrain.train.checkpoint.checkpoint_dir import name_of

rank_side = load_script(Path(__file__).with_name("state_rank.py"))
KIND = rank_side.KIND
STAGES = range(len(rank_side.GANGS))
SHARED = [stage for stage in STAGES if rank_side.GANGS[stage].num_ranks > 1]


@pytest.fixture(scope="module")
def journey(memory_folder):
    """A folder of all that was saved on the way, and what the ranks of each gang said."""
    with rank_side.small_slabs():
        place, state = CheckpointDir(str(memory_folder / KIND)), new_state(KIND)
        CheckpointWriter(place, state, Peers(), RankStore(), keep=10).save(0, 0, {}, {}, wait=True)
    told = [
        on_ranks(gang.num_ranks, rank_side.run_stage, stage, memory_folder)
        for stage, gang in enumerate(rank_side.GANGS)
    ]
    return memory_folder, told


def test_the_journey_leaves_no_trace(journey):
    folder, told = journey
    place = CheckpointDir(str(folder / KIND))
    undisturbed = new_state(KIND)
    for stage, gang in enumerate(rank_side.GANGS):
        rank_side.train(undisturbed, gang.steps)
        travelled = new_state(KIND, seed=9)
        own = read_all(place, name_of(gang.steps.stop, stage + 1), [travelled])[0]
        assert same_values(travelled, undisturbed), stage
        expected = [(rank, list(range(rank))) for rank in range(gang.num_ranks)]
        assert [(int(t["rank"]), t["rows"].tolist()) for t in own.values()] == expected
        values = {"stage": stage - 1} if stage else {}
        before = rank_side.GANGS[stage - 1].num_ranks if stage else 1
        for rank, results in enumerate(told[stage]):
            assert results["whole"] is True
            assert results["before"][0] == values
            share = list(range(rank, before, gang.num_ranks))
            assert list(results["before"][1]) == share
            if stage:
                assert [int(t["rank"]) for t in results["before"][1].values()] == share


@pytest.mark.parametrize("stage", SHARED)
def test_damage_that_one_rank_finds_turns_all_back(journey, stage):
    _, told = journey
    first, *others = (results["damage"] for results in told[stage])
    num_ranks = rank_side.GANGS[stage].num_ranks
    assert first[0] == 1
    assert len(first[1]) == 1
    assert name_of(2, 1) in first[1][0]
    assert f"rank-{num_ranks - 1}-of-{num_ranks}.safetensors" in first[1][0]
    assert f"seen by rank: {num_ranks - 1}" in first[1][0]
    assert others == [(1, [])] * (num_ranks - 1)


def test_a_writer_whose_peer_is_gone_closes_in_time(journey):
    _, told = journey
    first, second, gone = (results["lost"] for results in told[-1])
    assert gone is None
    for whole, _ in (first, second):
        assert whole is False, "they gave up rather than go on waiting"
    assert len(first[1]) == 1
    assert "rank 2: no report before training ended" in first[1][0]
    assert second[1] == []
    assert CheckpointDir(str(journey[0] / "lost")).list() == []


@pytest.mark.parametrize("stage", STAGES)
def test_a_models_file_is_the_same_from_any_ranks(journey, tmp_path, stage):
    folder, _ = journey
    save_model(tmp_path / "model", new_state("adam", seed=7).model, SPEC, SCHEMA)
    for file in sorted((tmp_path / "model").iterdir()):
        assert (folder / f"model-{stage}" / file.name).read_bytes() == file.read_bytes()


@pytest.mark.parametrize("stage", SHARED)
def test_a_model_is_loaded_by_ranks_that_share_it(journey, stage):
    folder, told = journey
    saved = load_model(folder / f"model-{stage}").model.embeddings.weights
    for results in told[stage]:
        for name in ("loaded", "weights"):
            assert len(results[name]) == len(saved)
            for number, weight in enumerate(saved):
                assert torch.equal(results[name][f"weights.{number}"], weight.data)
    shares = [results["local_rows_of"] for results in told[stage]]
    assert [sum(rows) for rows in zip(*shares, strict=True)] == [len(weight) for weight in saved]


@pytest.mark.parametrize("stage", SHARED)
def test_all_ranks_hear_that_rank_0_could_not_write_a_model(journey, stage):
    folder, told = journey
    first, *others = (results["heard"] for results in told[stage])
    assert "OutputError: could not write: File too large" in first[0]
    assert "OutputError: the output exists already" in first[1]
    for heard in others:
        assert "DistError: rank 0 could not write the file: could not write: File" in heard[0]
        assert "DistError: rank 0 could not write the file: the output exists" in heard[1]
    assert not (folder / "full").exists()
    assert list((folder / "taken").iterdir()) == []
    assert not [path for path in folder.iterdir() if "partial" in path.name]
    num_ranks = len(told[stage])
    total = num_ranks * (num_ranks + 1) // 2
    assert [results["sum"].tolist() for results in told[stage]] == [[total]] * num_ranks
