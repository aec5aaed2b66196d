"""Writes event files for TensorBoard with torch's own writer."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from distrain.jobs.job_view import AttemptStarted, Record
from distrain.jobs.run_paths import RunPaths
from distrain.runs.sinks.base import RunFacts, Stamped, scalars

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter


class TensorBoardFiles:
    """Writes each record's values as scalars over steps, and the spec as text.

    Each attempt starts a new file. It makes TensorBoard drop the points of earlier files after the
    step at which the attempt starts.

    Args:
        folder: The folder of the files; `None` for `tensorboard` in the run folder.
    """

    def __init__(self, folder: str | Path | None = None):
        self._folder = Path(folder) if folder else None
        self._into = Path()
        self._writer: SummaryWriter | None = None

    def open(self, facts: RunFacts) -> None:
        self._into = self._folder or RunPaths(facts.run_dir).tensorboard
        rows = [f"| {name} | {value} |" for name, value in facts.parameters.items()]
        table = "\n".join(["| field | value |", "|---|---|", *rows])
        writer = self._begin()
        writer.add_text("spec", table)
        writer.flush()

    def write(self, entries: Sequence[Stamped]) -> None:
        for entry, at_s in entries:
            if isinstance(entry, AttemptStarted):
                self._begin(entry.step + 1)
            elif isinstance(entry, Record):
                for name, value in scalars(entry).items():
                    self._open_writer.add_scalar(name, value, entry.step, walltime=at_s)
        self._open_writer.flush()

    def close(self, state: str) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    @property
    def _open_writer(self) -> "SummaryWriter":
        return self._begin() if self._writer is None else self._writer

    def _begin(self, purge_step: int | None = None) -> "SummaryWriter":
        from torch.utils.tensorboard import SummaryWriter

        self.close("")
        self._writer = SummaryWriter(str(self._into), purge_step=purge_step)
        return self._writer
