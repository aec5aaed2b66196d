"""An exponential moving average of weights whose step costs what a batch touches.

After step `t` the average is `a(t) = d a(t-1) + (1 - d) w(t)`, with `d` the decay and `a(0) = w(0)`
(Polyak and Juditsky 1992; torch's `AveragedModel` with `get_ema_multi_avg_fn`). Kept is the gap
`g = (a - w) / d^(t - s)`, with `s` the step where the present period began. A value that a step
leaves as it is has `a(t) - w = d (a(t-1) - w)`, so its gap stays; one that moves from `w` to `w'`
has `g + (w - w') / d^(t-1-s)`. Before a power leaves fp32, a new period begins.

The initial weights have the share `d^t` in an average. While that is more than `MOST_OF_START`, the
weights themselves stand for the average, or early validations would judge untrained weights.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

GAP = "gap"
"""The name of the gaps among an optimizer's state."""

MOST_OF_START = 0.05
"""The largest share of the initial weights in an average that is scored or saved."""

_SMALLEST_POWER = 1e-20


@dataclass(frozen=True)
class Averaging:
    """The powers of a decay, `0 < decay < 1`.

    >>> half = Averaging(0.5)
    >>> half.period, half.factor(3), half.factor(66) < 2e-20, half.factor(67)
    (66, 0.125, True, 0.5)
    """

    decay: float

    @property
    def period(self) -> int:
        """Steps of a period."""
        return max(1, int(math.log(_SMALLEST_POWER) / math.log(self.decay)))

    def factor(self, steps: int) -> float:
        """What a gap is multiplied with, after so many steps, to be the average less the value."""
        return float(self.decay ** ((steps - 1) % self.period + 1)) if steps else 1.0

    def begin(self, gaps: Tensor, step: int) -> None:
        """Begin step `step`, from 1, which may be a period's first."""
        if step > 1 and (step - 1) % self.period == 0:
            gaps *= self.decay**self.period

    def moved(self, step: int) -> float:
        """What a gap gets for each unit by which step `step`, from 1, lowers a value."""
        return float(self.decay ** -((step - 1) % self.period))

    @torch.no_grad()
    def averages(self, values: Tensor, gaps: Tensor, steps: int) -> Tensor:
        """The averages, in the type of the values; early in a training copies of the values."""
        if self.decay**steps > MOST_OF_START:
            return values.clone()
        return torch.add(values.to(gaps.dtype), gaps, alpha=self.factor(steps)).to(values.dtype)
