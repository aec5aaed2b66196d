"""The metrics state of a multiclass target, and its report."""

from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np

from distrain.metrics.bins import Counts, Doubles, Floats
from distrain.metrics.state import SummedState, checked_weights

TOP_K = 5
_LOGITS_AT_ONCE = 2**20  # of which several float64 copies are in memory


def rows_at_once(num_classes: int) -> int:
    """Return the number of rows whose logits are processed at once, which bounds memory."""
    return max(1, _LOGITS_AT_ONCE // num_classes)


@dataclass(frozen=True)
class MulticlassReport:
    """The metrics of some rows; each is `None` if the rows' weights add up to 0.

    Attributes:
        accuracy: Share of the rows whose own class has the highest logit; ties favour the lower
            class.
        top_5: Share of the rows whose own class is among the five highest.
        log_loss: Mean cross entropy in nats.
    """

    accuracy: float | None
    top_5: float | None
    log_loss: float | None

    def figures(self) -> dict[str, float | None]:
        return asdict(self)


class MulticlassMetrics(SummedState):
    """Sums over weighted rows: correct classes, classes among the top five, and log losses.

    >>> metrics = MulticlassMetrics()
    >>> metrics.update(np.array([[2.0, 1.0, 0.0], [0.0, 1.0, 2.0]]), np.array([0, 1]))
    >>> metrics.compute().accuracy
    0.5
    """

    kind: ClassVar[str] = "multiclass"
    SUMS = ("weight", "right", "among_top", "log_loss")

    __slots__ = ()

    @staticmethod
    def of_rows(place: Any, losses: Any) -> tuple[Any, ...]:
        """Return what each row adds to each of `SUMS`, without its weight.

        The arguments may be NumPy's arrays or torch's tensors, each `[rows]`: `place`, the number
        of classes that rank before the row's own class, and the log losses.
        """
        return 1.0, place == 0, place < TOP_K, losses

    def update(
        self, logits: Floats, labels: np.ndarray[Any, Any], weights: Floats | None = None
    ) -> None:
        """Count some rows: logits `[rows, classes]`, labels `0 .. classes-1`, `[rows]`.

        `weights` are `[rows]`; `None`: each row counts once.

        Errors as for `State.update`.
        """
        if logits.ndim != 2 or labels.shape != logits.shape[:1]:
            raise ValueError(
                f"logits {list(logits.shape)} must be [rows, classes], and labels "
                f"{list(labels.shape)} [rows]"
            )
        if not np.isfinite(logits).all():
            raise ValueError("a logit is not a finite number")
        num_classes = logits.shape[1]
        wrong = ~np.isin(labels, np.arange(num_classes))
        if wrong.any():
            index = int(np.argmax(wrong))
            raise ValueError(
                f"the label at index {index} is {labels[index]}, none of 0 to {num_classes - 1}"
            )
        w = checked_weights(weights, len(labels))
        most = rows_at_once(num_classes)
        for first in range(0, len(labels), most):
            some = slice(first, first + most)
            self._count(logits[some].astype(np.float64), labels[some].astype(np.int64), w[some])

    def _count(self, z: Doubles, labels: Counts, w: Doubles) -> None:
        own_class, classes = labels[:, None], np.arange(z.shape[1])
        own = np.take_along_axis(z, own_class, axis=1)
        place = ((z > own) | ((z == own) & (classes < own_class))).sum(axis=1)
        highest = z.max(axis=1, initial=-np.inf, keepdims=True)
        losses = np.log(np.exp(z - highest).sum(axis=1)) + (highest - own)[:, 0]
        self.rows += len(z)
        self.sums += [float((w * part).sum()) for part in self.of_rows(place, losses)]

    def compute(self) -> MulticlassReport:
        weight, right, among_top, log_loss = self.sums.tolist()
        if not weight:
            return MulticlassReport(None, None, None)
        return MulticlassReport(right / weight, among_top / weight, log_loss / weight)
