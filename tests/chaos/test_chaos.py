"""A run that is shot at, at random moments, ends with the bits of one that is left alone."""

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from dask_world import DaskWorld, TrainCommand, records, what_counts
from small_jobs import run_distrain
from waiting import until
from yaml import safe_dump

WEIGHTS = Path("model") / "weights.safetensors"
pytestmark = [pytest.mark.release, pytest.mark.timeout(3000)]


def document(prepared: Path, max_steps: int) -> dict[str, Any]:
    """A job over several epochs whose steps are as slow as a test can bear."""
    return {
        "name": "chaos",
        "data": {"train": str(prepared / "train"), "valid": str(prepared / "valid")},
        "model": {"kind": "dlrm", "embedding_dim": 8, "bottom": [16, 8], "top": [16]},
        "train": {
            "global_batch_size": 240,
            "epochs": 1 + max_steps * 240 // 10_500,
            "max_steps": max_steps,
            "log_every_steps": 7,
            "optimizer": {"kind": "adagrad", "lr": 0.02},
            "audit": True,
        },
        "embeddings": {"placement": "row_wise"},
        "evaluate": {"every_steps": 100},
        "checkpoint": {"every_steps": 10, "every_s": 1.0, "keep_best": "auc"},
        "restart": {"max_rank_failures": 1000, "max_worker_losses": 1000, "backoff_s": 0.1},
        "resources": {"num_ranks": 2, "device": "cpu"},
    }


@dataclass
class Shots:
    """A run, and who shoots at it.

    Attributes:
        world: The cluster.
        run_dir: The run.
        log: What its commands print.
        rng: Chooses moments and victims.
    """

    world: DaskWorld
    run_dir: Path
    log: Path
    rng: random.Random

    def begin(self, spec: Path) -> None:
        self.command = TrainCommand(
            spec, "--scheduler", self.world.address, "--run-dir", self.run_dir, log=self.log
        )

    def resume(self) -> None:
        self.command = TrainCommand(
            "--resume", self.run_dir, "--scheduler", self.world.address, log=self.log
        )

    def wait_for_a_moment(self) -> None:
        """Some while after the ranks have started: at once, or some steps later."""
        until(lambda: self.command.ended or len(self.world.ranks()) == 2, "two ranks")
        goal = last_step(self.run_dir) + self.rng.choice([0, 0, 7, 14, 40])
        until(
            lambda: self.command.ended or last_step(self.run_dir) >= goal,
            f"step {goal}\n{self.log.read_text()[-3000:]}",
            600,
        )
        assert not self.command.ended, self.log.read_text()[-3000:]

    def shoot(self, who: str) -> None:
        if who == "scheduler":
            self.world.kill_scheduler()
            assert self.command.wait() != 0
            self.world.start()
            self.resume()
            return
        targets = self.world.ranks() if who == "rank" else self.world.workers()
        if targets:
            try:
                self.rng.choice(targets).kill()
            except psutil.NoSuchProcess:
                return


def last_step(run_dir: Path) -> int:
    steps = [record["step"] for record in records(run_dir)]
    return int(steps[-1]) if steps else 0  # type: ignore[call-overload]


def shot_at(prepared: Path, root: Path, seed: int, victims: list[str], max_steps: int) -> None:
    """Run a job twice, once in peace, and compare."""
    spec = root / "job.yaml"
    spec.write_text(safe_dump(document(prepared, max_steps)))
    log = root / "train.log"
    calm = TrainCommand(spec, "--run-dir", root / "peace", log=log)
    assert calm.wait(1200) == 0, log.read_text()[-3000:]
    with DaskWorld(root, num_workers=2) as world:
        shots = Shots(world, root / "war", log, random.Random(seed))
        shots.begin(spec)
        try:
            for victim in victims:
                shots.wait_for_a_moment()
                shots.shoot(victim)
            assert shots.command.wait(1200) == 0, log.read_text()[-3000:]
        finally:
            shots.command.kill()
    assert (root / "war" / WEIGHTS).read_bytes() == (root / "peace" / WEIGHTS).read_bytes()
    peace, war = (what_counts(root / name) for name in ("peace", "war"))
    assert set(war) <= set(peace), "a record that peace does not know"
    assert len(war) == len(set(war))
    assert len(peace) - len(war) <= len(victims), "a shot costs one report interval at most"
    audit = run_distrain("audit", root / "war")
    assert audit.returncode == 0, audit.stdout + audit.stderr


@pytest.mark.parametrize("seed", [1, 2])
def test_many_shots_leave_no_trace(prepared: Path, tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    victims = rng.choices(["rank", "worker", "scheduler"], weights=[12, 6, 3], k=24)
    shot_at(prepared, tmp_path, seed, victims, max_steps=2_000)
