"""Where a rank runs, and what its supervisor hands its process: all that it needs to work."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from distrain.run_paths import RunPaths
from distrain.world import World


@dataclass(frozen=True, order=True)
class Slot:
    """Room for one rank: one Dask worker.

    Attributes:
        host: The worker's host; ranks of a gang are packed on few hosts.
        worker: The worker's address, which is another one when its nanny has restarted it.
        name: Its name, which stays; "" if it has none.
    """

    host: str
    worker: str
    name: str = ""


@dataclass(frozen=True)
class RankPlacement:
    """One rank's worker and its place in the gang."""

    slot: Slot
    world: World


@dataclass(frozen=True)
class Rendezvous:
    """Where the ranks of one attempt meet: a torch TCPStore on the coordinator's host.

    Attributes:
        prefix: Keys of this attempt begin with it, so attempts never mix.
    """

    host: str
    port: int
    prefix: str


@dataclass(frozen=True)
class Assignment:
    """One rank's work.

    Attributes:
        attempt: From 1; events carry it.
        spec: The job spec as JSON values.
        run_dir: The run directory, on a filesystem that every worker sees, or its URL.
        rendezvous: Where the peers meet; `None` for a single rank without peers.
        first_attempt: The first attempt of this submission: above 1 for a run that is resumed.
        files_dir: A folder of the worker for this rank's files, where `run_dir` is a URL.
    """

    job_id: str
    attempt: int
    world: World
    spec: dict[str, Any]
    run_dir: str
    rendezvous: Rendezvous | None = None
    first_attempt: int = 1
    files_dir: str = ""

    @property
    def paths(self) -> RunPaths:
        """The run directory's names."""
        if self.files_dir:
            return RunPaths(Path(self.files_dir), self.run_dir)
        return RunPaths(Path(self.run_dir))

    def dumps(self) -> str:
        """As one line of JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def loads(cls, text: str) -> "Assignment":
        """The inverse of `dumps`."""
        fields = json.loads(text)
        fields["world"] = World(**fields["world"])
        if fields["rendezvous"]:
            fields["rendezvous"] = Rendezvous(**fields["rendezvous"])
        return cls(**fields)
