"""The metrics state of a multiclass target, and its report."""

from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from distrain.metrics.state import SummedState

TOP_K = 5
_LOGITS_AT_ONCE = 2**20  # of which several float64 copies are in memory


def rows_at_once(num_classes: int) -> int:
    """Return the number of rows to process at a time, so that their logits take little memory."""
    return max(1, _LOGITS_AT_ONCE // num_classes)


@dataclass(frozen=True)
class MulticlassReport:
    """The metrics of some rows; each is `None` if the rows' weights add up to 0.

    Attributes:
        accuracy: Share of the rows whose own class has the highest logit; ties favour the lower
            class.
        top_5: Share of the rows whose own class is among the five highest; `None` if the target has
            at most five classes.
        log_loss: Mean cross entropy in nats.
    """

    accuracy: float | None
    top_5: float | None
    log_loss: float | None

    def figures(self) -> dict[str, float | None]:
        """Return the metrics by name, without `top_5` if it says nothing about the rows."""
        values: dict[str, float | None] = asdict(self)
        if self.top_5 is None and self.accuracy is not None:
            del values["top_5"]
        return values


class MulticlassMetrics(SummedState):
    """Sums over rows, by weight: whose class ranks first, or among the first five; log losses.

    If the target has at most five classes, each row adds -1 to `among_top`.

    >>> import numpy as np
    >>> MulticlassMetrics(2, np.array([2.0, 1.0, 2.0, 1.5])).compute().accuracy
    0.5
    """

    kind: ClassVar[str] = "multiclass"
    SUMS = ("weight", "right", "among_top", "log_loss")

    __slots__ = ()

    @staticmethod
    def of_rows(place: Any, losses: Any, num_classes: int) -> tuple[Any, ...]:
        """Return what each row adds to each of `SUMS`, without its weight.

        The first arguments are tensors, each `[rows]`: `place`, the number of classes that rank
        before the row's own class, and the log losses.
        """
        return 1.0, place == 0, place < TOP_K if num_classes > TOP_K else -1.0, losses

    def compute(self) -> MulticlassReport:
        weight, right, among_top, log_loss = self.sums.tolist()
        if not weight:
            return MulticlassReport(None, None, None)
        top_5 = among_top / weight if among_top >= 0 else None
        return MulticlassReport(right / weight, top_5, log_loss / weight)
