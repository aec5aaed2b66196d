"""Whole trainings with a refit, in plain steps and in played graphs, on two ranks."""

from pathlib import Path

import pytest
import torch
from gloo_ranks import on_ranks
from loaded_scripts import load_script
from rank_processes import of_kind

rank_side = load_script(Path(__file__).with_name("refit_rank.py"))


@pytest.mark.slow
def test_a_refit_of_ranks_with_unlike_rows_plays_graphs_with_the_bits_of_plain_steps(
    prepared: Path, tmp_path: Path
) -> None:
    gang = on_ranks(2, rank_side.refits, prepared, tmp_path)
    for (weights, events), (played, told), asked, replays in gang:
        assert all(torch.equal(played[name], values) for name, values in weights.items())
        of_steps = [
            [event["metrics"] for event in of_kind(each, "steps_done")] for each in (events, told)
        ]
        assert of_steps[0] == of_steps[1]
        _, of_refit = asked
        assert any(first != second for first, second in of_refit)
        assert replays > 0
        assert asked == gang[0][2]


def test_a_training_that_fails_releases_its_graphs(prepared: Path, tmp_path: Path) -> None:
    """NCCL's communicators cannot end while a graph holds their operations."""
    for made, held in on_ranks(2, rank_side.held_after, prepared, tmp_path):
        assert made > 0
        assert held == 0
