"""The metrics state of a regression, and its report.

For a row with weight `w`, target `y` and prediction `s`, the error is `e = s - y`:

    mean error = sum(w e) / sum(w)
    MAE        = sum(w |e|) / sum(w)
    RMSE       = sqrt(sum(w e^2) / sum(w))
    R2         = 1 - sum(w e^2) / (sum(w y^2) - sum(w y)^2 / sum(w))

The quantile `p` of the absolute error is the least `a` such that rows with `|e| <= a` have the
share `p` of all weights. Errors are counted in bins given by the first 15 bits of a float32 after
its sign: 8 of the exponent and 7 of the fraction. The width of a bin is at most 1/128 of its lower
end. The quantile is reported as the middle of its bin: its relative error is at most
1/256. Errors below 1e-38 are off by at most 1e-40; those beyond float32 share the last
bin.
"""

from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np

from distrain.metrics.bins import Doubles
from distrain.metrics.state import SummedState

ERROR_BINS = 255 * 128
ERROR_SHIFT = 16
"""Low bits of a float32 that its bin ignores."""


@dataclass(frozen=True)
class RegressionReport:
    """The metrics of some rows; `None` where undefined.

    Attributes:
        rmse: Root of the mean squared error, on the target's scale, like all but `r2`.
        mae: Mean absolute error.
        r2: Share of the target's variance that predictions explain; `None` without variance.
        mean_error: Mean of prediction minus target: above 0, predictions are too high.
        abs_error_p50: Median of the absolute error, within 0.4 %; `p90`, `p99` likewise.
    """

    rmse: float | None
    mae: float | None
    r2: float | None
    mean_error: float | None
    abs_error_p50: float | None
    abs_error_p90: float | None
    abs_error_p99: float | None

    def figures(self) -> dict[str, float | None]:
        return asdict(self)


class RegressionMetrics(SummedState):
    """Sums and binned errors, of constant size (256 KiB), for a `RegressionReport`.

    A row with the absolute error `e` is counted in the bin `bits >> ERROR_SHIFT`, where `bits` are
    those of `e` as float32; larger errors are counted in the last bin.

    >>> one_row = RegressionMetrics(1, np.array([1.0, 3.0, 3.0, 9.0, 4.0, 16.0]))
    >>> one_row.merge(RegressionMetrics(1, np.array([1.0, 0.0, 0.0, 0.0, 2.0, 4.0]))).compute().mae
    1.5
    """

    kind: ClassVar[str] = "regression"
    SUMS = ("weight", "error", "abs_error", "sq_error", "target", "sq_target")
    NUM_BINS = ERROR_BINS

    __slots__ = ()

    @staticmethod
    def of_rows(e: Any, size: Any, y: Any) -> tuple[Any, ...]:
        """Return what each row adds to each of `SUMS`, without its weight.

        The arguments are tensors: errors, their absolute values and targets, each `[rows]`.
        """
        return 1.0, e, size, e * e, y, y * y

    def compute(self) -> RegressionReport:
        weight, error, abs_error, sq_error, target, sq_target = self.sums.tolist()
        if not weight:
            return RegressionReport(None, None, None, None, None, None, None)
        spread = sq_target - target * target / weight
        return RegressionReport(
            float(np.sqrt(sq_error / weight)),
            abs_error / weight,
            # Rounding errors of equal targets do not count as variance.
            1 - sq_error / spread if spread > 1e-12 * sq_target else None,
            error / weight,
            *(_quantile(self.bins, share) for share in (0.5, 0.9, 0.99)),
        )


def _quantile(bins: Doubles, share: float) -> float:
    reached = np.cumsum(bins)
    place = int(np.searchsorted(reached, share * reached[-1] * (1 - 1e-12)))
    if place == 0:
        return 0.0
    ends = np.array([place, place + 1], np.uint32) << ERROR_SHIFT
    low, high = ends.view(np.float32).astype(np.float64)
    return float(low if not np.isfinite(high) else (low + high) / 2)
