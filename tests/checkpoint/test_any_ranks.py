"""A training that goes on from 2 ranks to 1 to 3, against one that nobody disturbed."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from distrain.checkpoint.folder import TENSORS_FILE
from distrain.models import load_model, save_model

SCRIPT = Path(__file__).with_name("state_rank.py")


def load_script():
    spec = importlib.util.spec_from_file_location("state_rank", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


rank_side = load_script()


@pytest.fixture(scope="module")
def journey(tmp_path_factory):
    """A folder of all that was saved on the way, and what the ranks of each gang said."""
    folder = tmp_path_factory.mktemp("journey")
    ran = subprocess.run(
        [sys.executable, str(SCRIPT), str(folder)],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stderr=subprocess.PIPE,
        text=True,
        timeout=250,
        check=False,
    )
    told = {}
    for num_ranks in rank_side.STEPS_OF:
        files = [folder / f"{rank}of{num_ranks}.pt" for rank in range(num_ranks)]
        assert all(file.exists() for file in files), ran.stderr
        told[num_ranks] = [torch.load(file, weights_only=True) for file in files]
    return folder, told


@pytest.mark.parametrize("kind", rank_side.KINDS)
def test_the_journey_leaves_no_trace(journey, tmp_path, kind):
    folder, told = journey
    undisturbed = rank_side.new_state(kind)
    for stage, steps in rank_side.STEPS_OF.items():
        rank_side.train(undisturbed, steps)
        undisturbed.save(tmp_path / str(stage), {"stage": stage})
        for file in sorted((tmp_path / str(stage)).iterdir()):
            travelled = folder / f"{kind}-{stage}" / file.name
            assert travelled.read_bytes() == file.read_bytes(), (stage, file.name)
    assert [results[kind] for results in told[3]] == [{"stage": 1}] * 3
    assert [results[kind] for results in told[2]] == [{}] * 2


@pytest.mark.parametrize("num_ranks", [2, 1, 3])
def test_a_models_file_is_the_same_from_any_ranks(journey, tmp_path, num_ranks):
    folder, _ = journey
    alone = rank_side.new_state("adam", seed=9)
    alone.load(folder / f"adam-{num_ranks}")
    save_model(tmp_path / "model", alone.model, rank_side.SPEC, rank_side.SCHEMA)
    for file in sorted((tmp_path / "model").iterdir()):
        assert (folder / f"model-{num_ranks}" / file.name).read_bytes() == file.read_bytes()


@pytest.mark.parametrize("num_ranks", [2, 3])
def test_a_model_is_loaded_by_ranks_that_share_it(journey, num_ranks):
    folder, told = journey
    saved = load_model(folder / f"model-{num_ranks}").model.embeddings.weights
    for results in told[num_ranks]:
        assert torch.equal(results["loaded"]["weights.0"], saved[0].data)
        assert torch.equal(results["loaded"]["weights.1"], saved[1].data)
    shares = [results["local_rows"] for results in told[num_ranks]]
    assert [sum(rows) for rows in zip(*shares, strict=True)] == [len(weight) for weight in saved]


@pytest.mark.parametrize("num_ranks", [2, 3])
def test_every_rank_can_have_the_whole(journey, num_ranks):
    folder, told = journey
    weights = load_model(folder / f"model-{num_ranks}").model.embeddings.weights
    for results in told[num_ranks]:
        assert len(results["weights"]) == len(weights)
        for number, weight in enumerate(weights):
            assert torch.equal(results["weights"][f"weights.{number}"], weight.data)


def test_half_precision_stays_what_it_is(journey, tmp_path):
    folder, _ = journey
    rank_side.new_state("sgd", dtype=torch.bfloat16).save(tmp_path / "half")
    expected = (tmp_path / "half" / TENSORS_FILE).read_bytes()
    assert b'"BF16"' in expected
    for num_ranks in (2, 3):
        assert (folder / f"half-{num_ranks}" / TENSORS_FILE).read_bytes() == expected


@pytest.mark.parametrize("num_ranks", [2, 3])
def test_all_ranks_hear_that_rank_0_could_not_write(journey, num_ranks):
    folder, told = journey
    first, *others = (results["heard"] for results in told[num_ranks])
    assert "OutputError: could not write: File too large" in first[0]
    assert "OutputError: the output exists already" in first[1]
    for heard in others:
        assert "DistError: rank 0 could not write for all: could not write: File" in heard[0]
        assert "DistError: rank 0 could not write for all: the output exists" in heard[1]
    assert not (folder / "full").exists()
    assert list((folder / "taken").iterdir()) == []
    assert not [path for path in folder.iterdir() if "partial" in path.name]
    total = num_ranks * (num_ranks + 1) // 2
    assert [results["sum"].tolist() for results in told[num_ranks]] == [[total]] * num_ranks
