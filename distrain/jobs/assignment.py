"""A rank's place, and everything that its supervisor passes to its process."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from distrain.jobs.run_paths import RunPaths


@dataclass(frozen=True)
class World:
    """A rank's number, and the numbers of ranks in its attempt and on its host."""

    rank: int = 0  # from 0
    num_ranks: int = 1  # number of ranks that train together: torch's world size
    ranks_per_node: int = 1  # number of the attempt's ranks on this rank's host

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.num_ranks:
            raise ValueError(f"rank {self.rank} is not in 0..{self.num_ranks - 1}")
        if self.ranks_per_node < 1:
            raise ValueError(f"ranks_per_node {self.ranks_per_node} is below 1")


@dataclass(frozen=True, order=True)
class Slot:
    """A place for one rank: one Dask worker, with its host, address and name."""

    host: str  # the worker's host; ranks of a gang are packed on few hosts
    worker: str  # the worker's address, which changes when its nanny restarts it
    name: str = ""  # the worker's name, which does not change; "" if it has none


@dataclass(frozen=True)
class RankPlacement:
    """A rank, and the Dask worker that runs it."""

    slot: Slot
    world: World


@dataclass(frozen=True)
class Rendezvous:
    """The store of one attempt's ranks: a torch TCPStore on the coordinator's host."""

    host: str
    port: int
    prefix: str  # keys of this attempt begin with it, so attempts never mix


@dataclass(frozen=True)
class Assignment:
    """The job, attempt, spec, run folder and place that a supervisor passes to a rank's process."""

    job_id: str
    attempt: int  # from 1; events contain it
    world: World
    spec: dict[str, Any]  # the job spec as JSON values
    run_dir: str  # the run folder, on a filesystem that every worker sees, or its URL
    # the store through which the ranks connect; `None` for a single rank
    rendezvous: Rendezvous | None = None
    # the first attempt of this submission: above 1 for a run that is resumed
    first_attempt: int = 1
    files_dir: str = ""  # a folder of the worker for this rank's files, where `run_dir` is a URL

    @property
    def paths(self) -> RunPaths:
        """The run folder's paths; if `run_dir` is a URL, with `files_dir` as local folder."""
        if self.files_dir:
            return RunPaths(Path(self.files_dir), self.run_dir)
        return RunPaths(Path(self.run_dir))

    def dumps(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def loads(cls, text: str) -> "Assignment":
        """Return the assignment for the text of `dumps`."""
        return TypeAdapter(cls).validate_json(text)
