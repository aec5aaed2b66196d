"""A browser, and a cluster that trains, for pages to be looked at."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from browser_fixtures import browser, tab
from dask_world import DaskWorld, TrainCommand
from distributed import Client
from small_jobs import small_document, write_prepared
from yaml import safe_dump

__all__ = ["browser", "tab"]

OUTPUT = Path(__file__).parents[2] / "test-output"

# A job that is far from its end when the last test is done.
LONG = {
    "name": "long",
    "train.epochs": 20_000,
    "train.max_steps": 1_000_000,
    "train.log_every_steps": 20,
    "evaluate.every_steps": 200,
    "checkpoint": {"every_steps": 300, "keep": 2},
}


@pytest.fixture(scope="session")
def output() -> Path:
    """Where screenshots stay."""
    OUTPUT.mkdir(exist_ok=True)
    return OUTPUT


@dataclass(frozen=True)
class Training:
    """A scheduler whose job `short` has succeeded and whose job `long` goes on.

    Attributes:
        url: The dashboard's.
        client: Of the scheduler.
    """

    url: str
    client: Client


@pytest.fixture(scope="module")
def training(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Training]:
    folder = tmp_path_factory.mktemp("training")
    spec = folder / "job.yaml"
    spec.write_text(safe_dump(small_document(write_prepared(folder / "prepared"))))
    # Two ranks want every core; scheduler and browser come first.
    gently = [("nice", "-n", "19")] * 2
    with (
        DaskWorld(folder, num_workers=2, wrappers=gently) as world,
        Client(world.address, timeout=60) as client,
    ):
        client.wait_for_workers(2, timeout=60)
        url = f"http://127.0.0.1:{client.scheduler_info()['services']['dashboard']}"
        at = (spec, "--scheduler", world.address)
        short = TrainCommand(
            *at, "--run-dir", folder / "short", "--set", "name=short", log=folder / "short.log"
        )
        assert short.wait() == 0
        options = [word for name, value in LONG.items() for word in ("--set", f"{name}={value}")]
        long = TrainCommand(*at, "--run-dir", folder / "long", *options, log=folder / "long.log")
        try:
            yield Training(url, client)
        finally:
            long.kill()
