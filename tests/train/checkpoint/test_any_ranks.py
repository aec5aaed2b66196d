"""What ranks of real gangs make of damage, and of a model's file.

That states load on any number of ranks is in `test_any_placement.py` and, among whole trainings, in
`train/loop/test_resume.py`.
"""

from pathlib import Path

import pytest
import torch
from checkpoint_states import SCHEMA, SPEC, new_state
from gloo_ranks import on_ranks
from loaded_scripts import load_script

from distrain.models import load_model
from distrain.models.saved_model import save_model
from distrain.train.checkpoint.checkpoint_dir import name_of

rank_side = load_script(Path(__file__).with_name("state_rank.py"))
STAGES = range(len(rank_side.GANGS))
SHARED = [stage for stage in STAGES if rank_side.GANGS[stage].num_ranks > 1]


@pytest.fixture(scope="module")
def gangs(memory_folder):
    """A folder of all that was saved, and what the ranks of each gang said."""
    told = [
        on_ranks(gang.num_ranks, rank_side.run_stage, stage, memory_folder)
        for stage, gang in enumerate(rank_side.GANGS)
    ]
    return memory_folder, told


@pytest.mark.parametrize("stage", SHARED)
def test_damage_that_one_rank_finds_turns_all_back(gangs, stage):
    _, told = gangs
    first, *others = (results["damage"] for results in told[stage])
    num_ranks = rank_side.GANGS[stage].num_ranks
    assert first[0] == 1
    assert len(first[1]) == 1
    assert name_of(2, 1) in first[1][0]
    assert f"rank-{num_ranks - 1}-of-{num_ranks}.safetensors" in first[1][0]
    assert f"seen by rank: {num_ranks - 1}" in first[1][0]
    assert others == [(1, [])] * (num_ranks - 1)


@pytest.mark.parametrize("stage", STAGES)
def test_a_models_file_is_the_same_from_any_ranks(gangs, tmp_path, stage):
    folder, _ = gangs
    save_model(tmp_path / "model", new_state("adam", seed=7).model, SPEC, SCHEMA)
    for file in sorted((tmp_path / "model").iterdir()):
        assert (folder / f"model-{stage}" / file.name).read_bytes() == file.read_bytes()


@pytest.mark.parametrize("stage", SHARED)
def test_a_model_is_loaded_by_ranks_that_share_it(gangs, stage):
    folder, told = gangs
    saved = load_model(folder / f"model-{stage}").model.embeddings.weights
    for results in told[stage]:
        for name in ("loaded", "weights"):
            assert len(results[name]) == len(saved)
            for number, weight in enumerate(saved):
                assert torch.equal(results[name][f"weights.{number}"], weight.data)
    shares = [results["local_rows_of"] for results in told[stage]]
    assert [sum(rows) for rows in zip(*shares, strict=True)] == [len(weight) for weight in saved]


@pytest.mark.parametrize("stage", SHARED)
def test_all_ranks_hear_that_rank_0_could_not_write_a_model(gangs, stage):
    folder, told = gangs
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
