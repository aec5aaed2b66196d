"""`Evaluation`: the metrics of labelled rows, as users of a model read them."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from distrain.formatting import target_metric_rows
from distrain.jobs.target_names import LABEL, with_own_name
from distrain.metrics.report import BinaryReport

_FIRST = ("rmse", "r2", "auc", "accuracy", "log_loss")
"""The metrics that come first in `Evaluation.targets` and in its text, in this order."""


@dataclass(frozen=True, repr=False)
class Evaluation:
    """The metrics of labelled rows; `None` where undefined.

    The metrics of the main target are attributes: `rmse`, `r2` and others of a regression, `auc`,
    `log_loss` and others of a binary target, `accuracy`, `log_loss` and `top_5` of a multiclass
    target. The main target is the first binary target, or without one the first target.

    Attributes:
        rows: Number of rows, regardless of weights.
        target: The main target's name.
        targets: The metrics of all targets, the main target's first: by target, then by metric.
    """

    rows: int
    target: str
    targets: Mapping[str, Mapping[str, float | None]]

    @classmethod
    def of(
        cls, report: BinaryReport, kinds: Sequence[tuple[str, str]], own_name: str = LABEL
    ) -> "Evaluation":
        """Return the evaluation of a report; `kinds` has the name and kind of each target.

        `own_name` replaces the name `label`, which `prep` gives to the first target.
        """
        binary = [name for name, kind in kinds if kind == "binary"]
        targets = {name: _in_order(metrics) for name, metrics in report.targets.items()}
        if binary:
            figures = asdict(report)
            own = {
                name: value for name, value in figures.items() if name not in ("rows", "targets")
            }
            targets = {binary[0]: _in_order(own), **targets}
        targets = with_own_name(targets, own_name)
        return cls(report.rows, next(iter(targets)), targets)  # the main target comes first

    def __getattr__(self, name: str) -> float | None:
        # `targets` is missing while a pickled evaluation is loaded.
        metrics = self.__dict__.get("targets", {}).get(self.__dict__.get("target"), {})
        if name in metrics:
            value: float | None = metrics[name]
            return value
        raise AttributeError(f"no metric {name!r}; there are: {', '.join(metrics)}")

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self.targets[self.target]]

    def __repr__(self) -> str:
        main, *more = target_metric_rows(self.targets, len(self.targets))
        texts = [main[1], *(f"{name}: {text}" for name, text in more)]
        return f"<{'; '.join(texts)}; {self.rows:,} rows>"


def _in_order(metrics: Mapping[str, float | None]) -> dict[str, float | None]:
    names = dict.fromkeys([*_FIRST, *metrics])
    return {name: metrics[name] for name in names if name in metrics}
