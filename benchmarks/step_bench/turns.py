"""Starts the contenders of a comparison, and gives them turns."""

import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

from benchmarks.step_bench.cases import MACHINE, Entry
from benchmarks.step_bench.links import Links

TURN_S = 0.6
MOST_STEPS = 50
SCRIPT = Path(__file__).parent.parent / "step.py"


@dataclass
class Measured:
    """The measurement of a contender at one batch size.

    Attributes:
        comparison: The comparison's name.
        entry: The contender.
        batch_rows: Rows per rank and step.
        step_s: Seconds per step in each round; ranks work in parallel.
        cpu_s: CPU seconds per step of rank 0 in each round; other processes do not add to it.
        phases_s: Seconds per step by phase of rank 0, in each round.
        counts: Operations, kernels and syncs of a step (`counting.count_step`).
    """

    comparison: str
    entry: Entry
    batch_rows: int
    step_s: list[float] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)
    phases_s: list[dict[str, float]] = field(default_factory=list)
    counts: dict[str, Any] = field(default_factory=dict)

    @property
    def rows_per_s(self) -> float:
        """The median over the rounds, of all ranks together."""
        return self.batch_rows * self.entry.setup.ranks / statistics.median(self.step_s)

    def median_phases_s(self) -> dict[str, float]:
        """Return each phase's median over the rounds."""
        names = self.phases_s[0] if self.phases_s else {}
        return {name: statistics.median(each[name] for each in self.phases_s) for name in names}


class Failed(Exception):
    """A contender's process ended instead of answering."""


class Ranks:
    """The processes of one contender."""

    def __init__(self, entry: Entry, python: str, data: Path, folder: Path, links: Links):
        self.entry, self.processes, self.logs = entry, [], []
        folder.mkdir()
        for rank in range(entry.setup.ranks):
            log = (folder / f"{rank}.log").open("w+")
            arguments = [*links.wrapper(rank), python, str(SCRIPT)]
            arguments += ["--entry", to_json(entry), "--data", str(data)]
            arguments += ["--rank", str(rank), "--meeting", str(folder / "meeting")]
            self.processes.append(start(arguments, log, entry.pages))
            self.logs.append(log)

    def ask(self, **request: Any) -> None:
        """Send a request to all ranks."""
        for process in self.processes:
            with contextlib.suppress(BrokenPipeError):  # `answers` reports it
                assert process.stdin is not None
                process.stdin.write(json.dumps(request) + "\n")
                process.stdin.flush()

    def answers(self) -> list[dict[str, Any]]:
        """Wait for a line of every rank.

        Raises:
            Failed: A rank ended instead.
        """
        answers = []
        for process in self.processes:
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line:
                raise Failed(f"{self.entry.name} failed:\n{self._what_ranks_said()}")
            answers.append(json.loads(line))
        return answers

    def _what_ranks_said(self) -> str:
        """Return each rank's exit status and the end of its log; rank 0 rarely fails first."""
        said = []
        for rank, (process, log) in enumerate(zip(self.processes, self.logs, strict=True)):
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(5)
            log.seek(0)
            said.append(f"rank {rank}, exit status {process.returncode}:\n{log.read()[-5000:]}")
        return "\n".join(said)

    def close(self) -> None:
        """Ask the processes to end, and kill those that do not."""
        for process in self.processes:
            assert process.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
        for process, log in zip(self.processes, self.logs, strict=True):
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            log.close()


def start(arguments: list[str], log: IO[str], pages: str) -> "subprocess.Popen[str]":
    """Start a process with one thread and the allocator settings of distrain's supervisors."""
    from distrain.workers.rank_process import ALLOCATOR

    environment = os.environ | ALLOCATOR | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    if pages != "ranks":
        environment["GLIBC_TUNABLES"] = f"glibc.malloc.hugetlb={int(pages == 'huge')}"
    return subprocess.Popen(
        arguments,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        text=True,
        env=environment,
    )


def to_json(entry: Entry) -> str:
    """Return the part of an entry that its process needs, as JSON."""
    return json.dumps({"who": entry.who, "setup": asdict(entry.setup)})


@contextlib.contextmanager
def running(
    entries: tuple[Entry, ...],
    pythons: dict[str, str],
    data: dict[str, Path],
    links: Links,
) -> Iterator[list[Ranks]]:
    """Start all contenders together; yield those that are ready, and end them afterwards."""
    started: list[Ranks] = []
    with tempfile.TemporaryDirectory() as folder:
        try:
            for number, entry in enumerate(entries):
                python = pythons.get(entry.who, sys.executable)
                own = Path(folder) / str(number)
                started.append(Ranks(entry, python, data[entry.data], own, links))
            ready = list(started)
            of_each(ready, Ranks.answers)
            yield ready
        finally:
            for ranks in started:
                ranks.close()


def of_each(
    contenders: list[Ranks], ask: Callable[[Ranks], Any], first: int = 0
) -> dict[Ranks, Any]:
    """Return the answer of each contender, beginning with number `first`; removes those that fail.

    Raises:
        SystemExit: The contender that measures the machine failed; records need it.
    """
    told = {}
    for ranks in (*contenders[first:], *contenders[:first]):
        try:
            told[ranks] = ask(ranks)
        except Failed as failed:
            if ranks.entry.who == MACHINE:
                raise SystemExit(str(failed)) from None
            print(f"Left out: {failed}", file=sys.stderr, flush=True)
            contenders.remove(ranks)
    return told


def measure(
    comparison: str, batch_rows: int, contenders: list[Ranks], rounds: int
) -> list[Measured]:
    """Give all contenders turns at a batch size; each round begins with another contender.

    A contender that fails is removed, and the others continue.
    """
    once = of_each(contenders, lambda ranks: turn(ranks, batch_rows, 1)["step_s"])
    steps = {ranks: max(1, min(MOST_STEPS, round(TURN_S / s))) for ranks, s in once.items()}
    measured = {ranks: Measured(comparison, ranks.entry, batch_rows) for ranks in once}
    for number in range(rounds):
        first = number % len(contenders)
        turns = of_each(contenders, lambda ranks: turn(ranks, batch_rows, steps[ranks]), first)
        for ranks, told in turns.items():
            measured[ranks].step_s.append(told["step_s"])
            measured[ranks].cpu_s.append(told["cpu_s"])
            measured[ranks].phases_s.append(told["phases_s"])
    for ranks, counts in of_each(contenders, lambda ranks: count(ranks, batch_rows)).items():
        measured[ranks].counts = counts
    return [measured[ranks] for ranks in contenders]


def turn(ranks: Ranks, batch_rows: int, steps: int) -> dict[str, Any]:
    """Take some steps; return the slowest rank's seconds per step, and rank 0's phases."""
    ranks.ask(do="turn", batch_rows=batch_rows, steps=steps)
    answers = ranks.answers()
    return answers[0] | {"step_s": max(answer["step_s"] for answer in answers)}


def count(ranks: Ranks, batch_rows: int) -> dict[str, Any]:
    """Return the operations, kernels and syncs of one step of rank 0."""
    ranks.ask(do="count", batch_rows=batch_rows)
    return ranks.answers()[0]
