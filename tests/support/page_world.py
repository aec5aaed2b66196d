"""A service with its pages on a port, and a run folder to look at."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from api_world import World, api_world, served
from kept_runs import write_records

from distrain.jobs.job_view import Record
from distrain.jobs.run_paths import RunPaths
from distrain.service.page import add_pages


@dataclass
class PageWorld:
    """A running service and where it listens."""

    world: World
    url: str

    def write_run(self, root: Path, num_records: int = 5) -> RunPaths:
        """Files as workers write them."""
        paths = RunPaths(root)
        paths.log(0, 1).parent.mkdir(parents=True)
        paths.log(0, 1).write_text("<b>rank 0 meets its peers</b>\n" + "step\n" * 20)
        place = {"host": "node-1", "device": "cuda:0", "hardware": "NVIDIA H200"}
        write_records(paths, [{"entry": "status", "places": [place] * 2}])
        self.add_records(paths, 0, num_records)
        return paths

    def add_records(self, paths: RunPaths, first: int, count: int) -> None:
        """More records at the end of the file."""
        for n in range(first, first + count):
            figures = (10 * (n + 1), 100, 1000 * (n + 1), 1.0 + n, 1000.0 + n, 0.7 / (n + 1))
            record = Record("train", 0, *figures, 0.9, 0.5 + n / 100, None, (1.5, 2.5), attempt=1)
            record = replace(record, seconds={"data_wait": 1.0, "forward_backward": 3.0})
            record = replace(record, usage={"cpu_pct": [150.4, 50.0], "host_bytes": [2**30] * 2})
            write_records(paths, [asdict(record)])
            if n % 2:
                valid = replace(record, split="valid", auc=0.4 + n / 100, loss=0.8)
                write_records(paths, [asdict(valid)])


@contextmanager
def page_world(folder: Path, **changes: Any) -> Iterator[PageWorld]:
    """Serve API and pages on a free port of this machine until the end of the block."""
    with api_world(folder, add_pages, **changes) as world, served(world.app) as url:
        yield PageWorld(world, url)
