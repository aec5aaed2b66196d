"""Real gloo ranks that compute something for a test: forks of a script that has torch loaded.

A script beside its test says what each rank computes and ends with::

    if __name__ == "__main__":
        run_gangs(Path(sys.argv[1]), NUM_RANKS, what_a_rank_computes)

The test runs it once, with `ran`, and asks for each gang's results. Loading torch takes longer than
all that the ranks of such a test do, so one process loads it for all (`loaded_scripts`); and the
test's own process, with its threads, is not one to fork.
"""

import importlib.util
import os
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from loaded_scripts import ORIGIN, origin, run_script
from torch import distributed as dist


def run_gangs(folder: Path, sizes: Iterable[int], compute: Callable[[int, int], object]) -> None:
    """Run gangs of ranks, one after the other; in the script.

    Args:
        folder: Takes what each rank computed.
        sizes: How many ranks each gang has.
        compute: From rank and number of ranks to what `torch.load` takes without code; called in
            the rank's process, in a process group.
    """
    check_origin()
    torch.set_num_threads(1)
    for num_ranks in sizes:
        children = [_fork(rank, num_ranks, folder, compute) for rank in range(num_ranks)]
        for child in children:
            os.waitpid(child, 0)


def _fork(rank: int, num_ranks: int, folder: Path, compute: Callable[[int, int], object]) -> int:
    """Start a rank; its process's id."""
    child = os.fork()
    if child == 0:
        try:
            _live(rank, num_ranks, folder, compute)
        except BaseException:
            traceback.print_exc()
        finally:
            # gloo sometimes aborts at interpreter exit, after all work is done.
            os._exit(0)
    return child


def _live(rank: int, num_ranks: int, folder: Path, compute: Callable[[int, int], object]) -> None:
    store = dist.FileStore(str(folder / f"store-{num_ranks}"), num_ranks)
    dist.init_process_group(
        "gloo", store=store, rank=rank, world_size=num_ranks, timeout=timedelta(seconds=180)
    )
    path = _results_path(folder, rank, num_ranks)
    torch.save(compute(rank, num_ranks), path.with_suffix(".part"))
    path.with_suffix(".part").rename(path)
    dist.destroy_process_group()


@dataclass(frozen=True)
class Gangs:
    """What a script's gangs left.

    Attributes:
        folder: Their files.
        errors: What they wrote to stderr.
    """

    folder: Path
    errors: str

    def of(self, num_ranks: int) -> list[Any]:
        """What each rank of the gang of so many computed."""
        files = [_results_path(self.folder, rank, num_ranks) for rank in range(num_ranks)]
        assert all(file.exists() for file in files), self.errors
        return [torch.load(file, weights_only=True) for file in files]


def ran(script: Path, folder: Path, *words: object, timeout_s: float = 240.0) -> Gangs:
    """Run a script of `run_gangs` to its end; in the test.

    Args:
        script: Its path.
        folder: Handed to it as its first argument.
        words: Its other arguments.
        timeout_s: How long it may take.
    """
    return Gangs(folder, run_script(script, folder, *words, timeout_s=timeout_s).stderr)


def check_origin() -> None:
    """In a script: refuse to test another distrain than the tests do. By hand, any will do.

    Raises:
        RuntimeError: It was imported from somewhere else.
    """
    expected = os.environ.get(ORIGIN)
    if expected not in (None, str(origin())):
        raise RuntimeError(f"the ranks import distrain from {origin()}, the tests from {expected}")


def load_script(path: Path) -> ModuleType:
    """A script as a module, for what the test shares with its ranks."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _results_path(folder: Path, rank: int, num_ranks: int) -> Path:
    return folder / f"{rank}of{num_ranks}.pt"
