"""Whole trainings with routes made in turn and ahead, on one and two gloo ranks."""

from pathlib import Path
from typing import Any

import pytest
import torch
from gloo_ranks import on_ranks
from loaded_scripts import load_script
from small_jobs import write_prepared

COLUMNS = 26
rank_side = load_script(Path(__file__).with_name("ahead_rank.py"))
VARIANTS = rank_side.VARIANTS


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with prepared rows."""
    folder = tmp_path_factory.mktemp("ranks")
    write_prepared(folder / "prepared")
    return folder


@pytest.fixture(scope="module", params=rank_side.NUM_RANKS)
def gang(request: pytest.FixtureRequest, folder: Path) -> Any:
    """For each rank, for each variant: its weights and its events."""
    return on_ranks(request.param, rank_side.results, folder / "prepared", folder)


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


def test_windows_of_the_exchange_sum_to_its_totals(gang: Any) -> None:
    for of_rank in gang:
        for _, events in of_rank:
            (finished,) = of_kind(events, "rank_finished")
            windows = [event["exchange"] for event in of_kind(events, "steps_done")]
            total = finished["exchange"]
            for name in ("steps", "lookups", "distinct", "updated", "sent_bytes"):
                assert sum(window[name] for window in windows) == total[name], name
            assert total["steps"] == finished["steps"] == 23
            assert total["lookups"] == COLUMNS * finished["rows"]
            assert 0 < total["distinct"] < total["lookups"]
            assert total["unique_ratio"] == total["distinct"] / total["lookups"]
            assert sum(window["route_s"] for window in windows) == pytest.approx(total["route_s"])
            assert total["route_s"] > 0
            assert (total["sent_bytes"] > 0) == (len(gang) > 1)
            assert finished["peak_memory"]["host_bytes"] > 50e6
            assert finished["device_seconds"] == {}


def test_routes_in_turn_are_a_phase_and_routes_ahead_are_not(gang: Any) -> None:
    for of_rank in gang:
        for (_, route_ahead), (_, events) in zip(VARIANTS, of_rank, strict=True):
            (finished,) = of_kind(events, "rank_finished")
            seconds = finished["seconds"]
            assert sum(seconds.values()) == pytest.approx(finished["elapsed_s"], abs=1e-6)
            if not route_ahead:
                assert finished["exchange"]["route_s"] <= seconds["exchange"]
                assert seconds["copy"] > 0
            else:
                assert seconds["copy"] == 0.0
