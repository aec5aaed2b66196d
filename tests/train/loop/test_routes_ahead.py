"""Whole trainings with routes in turn, ahead and in played graphs, on two gloo ranks."""

from pathlib import Path
from typing import Any

import pytest
import torch
from gloo_ranks import on_ranks
from loaded_scripts import load_script
from small_jobs import write_prepared

rank_side = load_script(Path(__file__).with_name("ahead_rank.py"))
VARIANTS = rank_side.VARIANTS


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with prepared rows."""
    folder = tmp_path_factory.mktemp("ranks")
    write_prepared(folder / "prepared")
    return folder


@pytest.fixture(scope="module")
def gang(folder: Path) -> Any:
    """For each rank, for each variant: its weights and its events."""
    return on_ranks(2, rank_side.results, folder / "prepared", folder)


def of_kind(events: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [event for event in events if event["kind"] == kind]


def test_weights_and_metrics_do_not_depend_on_when_routes_are_made(gang: Any) -> None:
    for of_rank in gang:
        for (placement, route_ahead), (weights, events) in zip(VARIANTS, of_rank, strict=True):
            expected, told = of_rank[VARIANTS.index((placement, 0))]
            assert weights.keys() == expected.keys()
            for name, values in weights.items():
                assert torch.equal(values, expected[name]), (placement, route_ahead, name)
            for kind, count in (("steps_done", 5), ("evaluation_done", 3)):
                metrics = [event["metrics"] for event in of_kind(events, kind)]
                assert metrics == [event["metrics"] for event in of_kind(told, kind)]
                assert len(metrics) == count


def test_routes_in_turn_are_a_phase_and_routes_ahead_are_not(gang: Any) -> None:
    for of_rank in gang:
        for (_, route_ahead), (_, events) in zip(VARIANTS, of_rank, strict=True):
            (finished,) = of_kind(events, "rank_finished")
            seconds = finished["seconds"]
            assert sum(seconds.values()) == pytest.approx(finished["elapsed_s"], abs=1e-6)
            assert seconds["copy"] == 0.0  # the loader's batches are on the device
            if route_ahead == 0:
                assert finished["exchange"]["route_s"] <= seconds["exchange"]


def test_a_refit_of_ranks_with_unlike_rows_plays_graphs_with_the_bits_of_plain_steps(
    folder: Path, tmp_path: Path
) -> None:
    gang = on_ranks(2, rank_side.refits, folder / "prepared", tmp_path)
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
