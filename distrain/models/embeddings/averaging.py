"""An exponential moving average of weights whose step costs only the rows of a batch.

After step `t` the average is `a(t) = d a(t-1) + (1 - d) w(t)`, with `d` the decay and `a(0) = w(0)`
(Polyak and Juditsky 1992; torch's `AveragedModel` with `get_ema_multi_avg_fn`). The state is the
gap `g = (a - w) / d^(t - s)`, with `s` the step at which the current period began. A value that a
step does not change has `a(t) - w = d (a(t-1) - w)`, so its gap is constant. A value that changes
from `w` to `w'` gets `g + (w - w') / d^(t-1-s)`. Before a power leaves fp32, a new period begins.

The initial weights have the share `d^t` in an average. Above `MOST_OF_START`, the weights
themselves are used instead of the average; otherwise early validations would score untrained
weights.
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
        """Return the factor of a gap after `steps` steps: average minus value is the product."""
        return float(self.decay ** ((steps - 1) % self.period + 1)) if steps else 1.0

    def begin(self, gaps: Tensor, step: int) -> None:
        """Prepare the gaps for step `step`, from 1; rescales them if it begins a new period."""
        if step > 1 and (step - 1) % self.period == 0:
            gaps *= self.decay**self.period

    def moved(self, step: int) -> float:
        """Return the increase of a gap in step `step`, from 1, when its value decreases by 1."""
        return float(self.decay ** -((step - 1) % self.period))

    @torch.no_grad()
    def averages(self, values: Tensor, gaps: Tensor, steps: int) -> Tensor:
        """Return the averages in the dtype of the values.

        Early in a training, copies of the values.
        """
        if self.decay**steps > MOST_OF_START:
            return values.clone()
        return torch.add(values.to(gaps.dtype), gaps, alpha=self.factor(steps)).to(values.dtype)
