"""The slices in which a rank's rows of a step go through the dense part."""

from dataclasses import dataclass
from itertools import pairwise

from distrain.spec import TrainSpec

ROWS_PER_THREAD = 4096
"""Of a slice that a core's caches nearly hold, with layers some hundred values wide."""
_FEWEST_SLICES = 4
"""Below that, there is little to gain, and batches in slices hide no exchange of rows."""


@dataclass(frozen=True)
class Slicing:
    """How batches are cut: `count` slices, or if that is `None` as many as hold about `rows` rows.

    That number is rounded: ranks of a job have some rows more or fewer than each other, often
    around a multiple of `rows`, and are cut alike there. Where they are not, sums are rounded in
    another order, but ranks still exchange in one order.
    """

    count: int | None
    rows: int = 0

    def count_of(self, num_rows: int) -> int:
        """The number of slices of a batch.

        >>> cut = Slicing(None, rows=100)
        >>> [cut.count_of(rows) for rows in (0, 349, 350, 396, 404, 1149)]
        [1, 1, 4, 4, 4, 11]
        """
        if self.count is not None:
            return self.count
        fitting = (num_rows + self.rows // 2) // self.rows
        return fitting if fitting >= _FEWEST_SLICES else 1

    def most_rows(self, num_rows: int) -> int:
        """Rows of the largest slice of a batch.

        >>> cut = Slicing(None, rows=100)
        >>> [cut.most_rows(rows) for rows in (150, 349, 400, 5040)]
        [150, 349, 100, 101]
        """
        return -(-num_rows // self.count_of(num_rows))

    def slices(self, num_rows: int) -> list[slice]:
        """Slices of nearly equal length, which may be empty.

        >>> Slicing(2).slices(5)
        [slice(0, 2, None), slice(2, 5, None)]
        """
        count = self.count_of(num_rows)
        bounds = [num_rows * i // count for i in range(count + 1)]
        return [slice(low, high) for low, high in pairwise(bounds)]


def slicing_of(
    train: TrainSpec, *, on_cpu: bool, rows_are_independent: bool, num_threads: int
) -> Slicing:
    """What `train.micro_batches` means for a rank.

    The same job on as many ranks is cut alike, wherever its ranks are: the order of sums, and so
    the last bits of results, depend on it.
    """
    if train.micro_batches != "auto":
        return Slicing(train.micro_batches)
    if train.compile or train.cuda_graph or not on_cpu or not rows_are_independent:
        return Slicing(1)
    return Slicing(None, ROWS_PER_THREAD * num_threads)
