"""Chooses the size of a comparison's tables, and draws the rows that it trains on."""

from pathlib import Path

from benchmarks.step_bench.cases import GROWTH, MACHINE, SMALL, STRETCHED, TABLES, Comparison
from benchmarks.step_bench.data import LEAST_BATCHES, load_rows, rows_of_tables, stretch, write_rows

SHARE_OF_MEMORY = 0.6
PROCESS_BYTES = 600_000_000
"""Memory of a contender's process apart from its tables: libraries, batches, gradients."""
SCALES = (1.0, 0.75, 0.5, 0.35, 0.25, 0.15, 0.1, 0.05, 0.02)
QUICK_SCALE = 0.25
SMALL_SCALE = 0.022  # 1.0M rows
LONGEST_STEP_S = {False: 6.0, True: 2.0}
ROWS = {False: 16 * 65_536, True: 4 * 65_536}
ROUNDS = {False: 5, True: 3}
EMBEDDED_COLUMNS = 26
COPIES_OF_EMBEDDINGS = (
    6  # peak memory of a step, in multiples of a batch's embeddings; 5.7 for DLRM 128
)


def chosen_scale(comparison: Comparison, quick: bool) -> float:
    """Return the largest scale at which all contenders' tables fit into the free memory.

    With `--quick` on a CPU it is at most a quarter, unless the comparison is about the tables'
    size.
    """
    setup = comparison.entries[0].setup
    free = free_bytes(setup.device)
    if not setup.cuda:
        free -= PROCESS_BYTES * sum(entry.setup.ranks for entry in comparison.entries)
    taken = sum(entry.bytes_per_table_row for entry in comparison.entries)
    fitting = [s for s in SCALES if rows_of_tables(s) * taken <= SHARE_OF_MEMORY * free]
    if quick and not setup.cuda and comparison.name != GROWTH:
        fitting = [scale for scale in fitting if scale <= QUICK_SCALE]
    return max(fitting, default=SCALES[-1])


def free_bytes(device: str) -> int:
    """Return the free memory of the GPU, or of the host."""
    if device == "cuda":
        import torch

        return int(torch.cuda.mem_get_info()[0])
    import psutil

    return int(psutil.virtual_memory().available)


class Data:
    """Rows by scale, drawn when they are first needed.

    Args:
        folder: An empty folder.
        quick: Whether to draw fewer rows.

    Attributes:
        rounds: Number of turns of each contender at each batch size.
    """

    def __init__(self, folder: Path, quick: bool):
        self._folder, self._quick = folder, quick
        self.rounds = ROUNDS[quick]

    def folders(self, comparison: Comparison, scale: float) -> dict[str, Path]:
        """Return the folder of each kind of rows that the comparison needs."""
        kinds = {entry.data for entry in comparison.entries if entry.data != TABLES}
        if not kinds:
            return {TABLES: self._drawn(scale)}
        small = self._drawn(SMALL_SCALE)
        wide = self._folder / f"stretched-{scale}"
        if not wide.exists():
            stretch(small, wide, scale)
        return {SMALL: small, STRETCHED: wide, TABLES: small}

    def facts(self, folder: Path, batch_rows: int, ranks: int) -> dict[str, float]:
        """Return the tables' rows, and the mean distinct rows that a rank's batch touches."""
        import numpy as np

        rows = load_rows(folder)
        parts = rows.batches(batch_rows, 0, ranks)[:LEAST_BATCHES]
        distinct = [sum(len(np.unique(ids)) for ids in rows.ids[:, part]) for part in parts]
        return {
            "table_rows": sum(rows.cardinalities),
            "distinct_rows": round(sum(distinct) / len(distinct)),
        }

    def too_large(self, comparison: Comparison, batch_rows: int, s_per_row: float) -> str | None:
        """Return why a batch size is left out, or None; `s_per_row` is that of the slowest step."""
        ranks = comparison.ranks
        if batch_rows * ranks * LEAST_BATCHES > ROWS[self._quick]:
            return "there are rows for fewer than two batches"
        step_s, longest_s = batch_rows * s_per_row, LONGEST_STEP_S[self._quick]
        if step_s > longest_s:
            return f"a step would take {step_s:.0f} s, more than {longest_s:.0f}"
        setup = comparison.entries[0].setup
        needed = batch_rows * ranks * EMBEDDED_COLUMNS * setup.dim * 4 * COPIES_OF_EMBEDDINGS
        if setup.cuda:  # each contender keeps the memory that it has once allocated
            needed *= sum(entry.who != MACHINE for entry in comparison.entries)
        free = free_bytes(setup.device)
        if needed > free:
            return f"a step would take {needed / 1e9:.0f} GB, {free / 1e9:.0f} are free"
        return None

    def _drawn(self, scale: float) -> Path:
        folder = self._folder / f"scale-{scale}"
        if not folder.exists():
            write_rows(folder, ROWS[self._quick], scale)
        return folder
