"""An exponential moving average of weights; a step only updates the averages of a batch's rows.

After step `t` the average is `a(t) = d a(t-1) + (1 - d) w(t)`, with `d` the decay and `a(0) = w(0)`
(Polyak and Juditsky 1992; torch's `AveragedModel` with `get_ema_multi_avg_fn`). The state is the
gap `g = (a - w) / d^(t - s)`, with `s` the step at which the current period began. A value that a
step does not change has `a(t) - w = d (a(t-1) - w)`, so its gap is constant. A value that changes
from `w` to `w'` gets `g + (w - w') / d^(t-1-s)`. A new period begins before a power gets too small
for float32.

The share of the initial weights in an average is `d^t`. While it is above `MOST_OF_START`, the
weights themselves are used instead of the average; otherwise early validations would score
untrained weights.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

GAP = "gap"
"""The name of the gaps (see the module's docstring) in an optimizer's state."""

MOST_OF_START = 0.05
"""The largest share of the initial weights in an average that is scored or saved."""

_SMALLEST_POWER = 1e-20


@dataclass(frozen=True)
class Averaging:
    """Computes averages and gaps (see the module's docstring) for a decay, `0 < decay < 1`.

    >>> half = Averaging(0.5)
    >>> half.period, half.factor(3), half.factor(66) < 2e-20, half.factor(67)
    (66, 0.125, True, 0.5)
    """

    decay: float

    @property
    def period(self) -> int:
        """The number of steps after which the gaps are rescaled.

        It is the largest for which the decay's powers stay above 1e-20, which float32 can hold.
        """
        return max(1, int(math.log(_SMALLEST_POWER) / math.log(self.decay)))

    def factor(self, steps: int) -> float:
        """Return the factor `f` with `average = weight + f * gap` after `steps` steps."""
        return float(self.decay ** ((steps - 1) % self.period + 1)) if steps else 1.0

    def begin(self, gaps: Tensor, step: int) -> None:
        """Rescale the gaps, in place, if step `step` (counted from 1) begins a new period."""
        if step > 1 and (step - 1) % self.period == 0:
            gaps *= self.decay**self.period

    def growth(self, step: int) -> float:
        """Return how much a weight's gap increases in a step if the weight decreases by 1.

        `step` is counted from 1.
        """
        return float(self.decay ** -((step - 1) % self.period))

    @torch.no_grad()
    def averages(self, values: Tensor, gaps: Tensor, steps: int) -> Tensor:
        """Return the averages after `steps` steps, in the dtype of the values.

        Returns copies of the values while the initial weights' share is above `MOST_OF_START`.
        """
        if self.decay**steps > MOST_OF_START:
            return values.clone()
        return torch.add(values.to(gaps.dtype), gaps, alpha=self.factor(steps)).to(values.dtype)
