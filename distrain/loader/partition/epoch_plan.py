"""Assigns the rows of an epoch to lanes, steps and ranks.

The rows of an epoch form a sequence, the line, with places `0 .. num_rows-1` (see `row_order`). The
line is cut into `lanes` spans of equal length, plus or minus one. Steps take rows from the lanes in
turn: the `i`-th row that is taken in an epoch (from 0) is row `i // lanes` of lane `i % lanes`, and
it belongs to step `i // global_batch_size`. Hence

- after `t` steps `ceil((min(t * B, N) - l) / S)` rows of lane `l` were taken (B rows a step, N rows
  in total, S lanes), which is an even share, rounded down or up;
- every step has exactly B rows, but the last one has the rest;
- the last rows of all lanes are the last S rows that are taken;
- any S and any B are possible, and nothing depends on the number of ranks.

A rank serves whole lanes, adjacent on the line, so the global batch of a step (the ranks' rows in
rank order) is the same for every number of ranks that divides the lanes.

A table may be cut into windows (see `windows`). Each window has its own line and plan, and an epoch
consists of the steps of all windows, one window after the other (`EpochSteps`).
"""

import math
from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from distrain.errors import SpecError

_IntT = TypeVar("_IntT", int, NDArray[np.int64])


@dataclass(frozen=True)
class EpochPlan:
    """Assigns an epoch's N rows to S lanes, to steps of B rows over all ranks, and to ranks.

    `drop_last` drops a last step with fewer than B rows. S and B are at least 1; `LoaderOptions`
    validates them, and the numbers of ranks.

    >>> plan = EpochPlan(num_rows=10, lanes=3, global_batch_size=4)
    >>> plan.num_steps, plan.rows_in_step(2)
    (3, 2)
    >>> [plan.lane_span(lane) for lane in range(3)]
    [(0, 4), (4, 7), (7, 10)]
    >>> [plan.lane_rows_before(lane, step=1) for lane in range(3)]
    [2, 1, 1]
    """

    num_rows: int
    lanes: int
    global_batch_size: int
    drop_last: bool = False

    @property
    def num_steps(self) -> int:
        if self.drop_last:
            return self.num_rows // self.global_batch_size
        return -(-self.num_rows // self.global_batch_size)

    def rows_in_step(self, step: int) -> int:
        if not 0 <= step < self.num_steps:
            raise ValueError(f"step {step} is not in 0..{self.num_steps - 1}")
        start = step * self.global_batch_size
        return min(self.global_batch_size, self.num_rows - start)

    def lane_span(self, lane: int) -> tuple[int, int]:
        """Return where a lane begins and ends on the line (see the module docstring).

        These are the place of its first row, and one past the place of its last row.
        """
        return self.rows_below(lane, self.num_rows), self.rows_below(lane + 1, self.num_rows)

    def lane_rows_before(self, lane: int, step: int) -> int:
        """Return how many of the lane's rows are in the steps before `step`.

        `step` is in `0 .. num_steps`.
        """
        taken = min(step * self.global_batch_size, self.num_rows)
        return self.rows_below(lane + 1, taken) - self.rows_below(lane, taken)

    def step_of(self, lane: _IntT, offset: _IntT) -> _IntT:
        """Return the step that takes row number `offset`, from 0, of a lane's sequence of rows."""
        return (offset * self.lanes + lane) // self.global_batch_size

    def lanes_of_rank(self, rank: int, num_ranks: int) -> range:
        """Return the lanes whose rows a rank gets.

        Raises:
            SpecError: `num_ranks` does not divide the lanes.
        """
        if self.lanes % num_ranks:
            allowed = [str(n) for n in range(1, self.lanes + 1) if self.lanes % n == 0]
            raise SpecError(
                f"{num_ranks} ranks cannot share {self.lanes} lanes evenly",
                hint=f"With {self.lanes} lanes, num_ranks may be {', '.join(allowed)}; "
                f"or choose {math.lcm(24, num_ranks)} lanes.",
            )
        lanes_per_rank = self.lanes // num_ranks
        return range(rank * lanes_per_rank, (rank + 1) * lanes_per_rank)

    def rank_rows(self, step: int, rank: int, num_ranks: int) -> int:
        """Return the number of rows of a step that a rank gets; may be 0 in a short last step."""
        lanes = self.lanes_of_rank(rank, num_ranks)
        start = step * self.global_batch_size
        stop = start + self.rows_in_step(step)
        below, up_to = (
            self.rows_below(lane, stop) - self.rows_below(lane, start)
            for lane in (lanes.start, lanes.stop)
        )
        return up_to - below

    def rows_below(self, lane: int, taken: _IntT) -> _IntT:
        """Return how many of the first `taken` rows of an epoch come from lanes `0 .. lane-1`.

        The numbers of rows of a lane, a step or a rank are differences of such numbers.
        """
        rounds, rest = divmod(taken, self.lanes)
        # The last two terms are min(rest, lane), for a number and for an array.
        return rounds * lane + rest - (rest - lane) * (rest > lane)


@dataclass(frozen=True)
class EpochSteps:
    """The steps of an epoch: the steps of its windows, one window after the other.

    A table without windows counts as one window.

    >>> steps = EpochSteps((EpochPlan(10, 3, 4), EpochPlan(5, 3, 4)))
    >>> steps.num_steps, [steps.rows_in_step(step) for step in range(5)]
    (5, [4, 4, 2, 4, 1])
    >>> [steps.window_of(step) for step in range(5)], steps.span(1), steps.rows_before(4)
    ([0, 0, 0, 1, 1], (3, 5), 14)
    """

    plans: tuple[EpochPlan, ...]

    @cached_property
    def _firsts(self) -> tuple[int, ...]:
        return tuple(accumulate((plan.num_steps for plan in self.plans), initial=0))

    @cached_property
    def _rows_before(self) -> tuple[int, ...]:
        return tuple(accumulate(map(_trained_rows, self.plans), initial=0))

    @property
    def num_steps(self) -> int:
        return self._firsts[-1]

    @property
    def trained_rows(self) -> int:
        """The number of rows in all steps: the table's, less those dropped by `drop_last`."""
        return self._rows_before[-1]

    def window_of(self, step: int) -> int:
        """Return the index of a step's window; for `num_steps`, that of the last window."""
        return min(bisect_right(self._firsts, step), len(self.plans)) - 1

    def span(self, window: int) -> tuple[int, int]:
        """Return the first step of a window, and one past its last step."""
        return self._firsts[window], self._firsts[window + 1]

    def rows_in_step(self, step: int) -> int:
        window = self.window_of(step)
        return self.plans[window].rows_in_step(step - self._firsts[window])

    def rank_rows(self, step: int, num_ranks: int) -> tuple[int, ...]:
        """Return the number of rows of a step that each rank gets.

        >>> EpochSteps((EpochPlan(num_rows=10, lanes=4, global_batch_size=7),)).rank_rows(0, 2)
        (4, 3)
        """
        window = self.window_of(step)
        plan, of_window = self.plans[window], step - self._firsts[window]
        return tuple(plan.rank_rows(of_window, rank, num_ranks) for rank in range(num_ranks))

    def rows_before(self, step: int) -> int:
        """Return the number of rows in the steps before `step`, `0 <= step <= num_steps`."""
        window = self.window_of(step)
        plan, of_window = self.plans[window], step - self._firsts[window]
        rows = min(of_window * plan.global_batch_size, plan.num_rows)
        return self._rows_before[window] + rows


def _trained_rows(plan: EpochPlan) -> int:
    return min(plan.num_rows, plan.num_steps * plan.global_batch_size)
