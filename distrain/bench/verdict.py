"""What a bench comes to. Pure."""

from dataclasses import dataclass

from distrain.bench.changes import FigureChange, find_changes
from distrain.bench.document import Bench
from distrain.bench.health import find_remarks, find_troubles
from distrain.bench.limits import StepLimits, find_limits
from distrain.bench.outliers import OUTLIER_SHARE, Outlier, find_outliers
from distrain.bench.thresholds import Miss, Thresholds, find_misses


@dataclass(frozen=True)
class BenchVerdict:
    limits: StepLimits | None  # `None` without steps
    outliers: tuple[Outlier, ...]
    misses: tuple[Miss, ...]
    changes: tuple[FigureChange, ...]
    troubles: tuple[str, ...] = ()  # of GPUs, beside their figures
    remarks: tuple[str, ...] = ()  # which fail nothing
    accepting: bool = False  # whether a machine type's thresholds were given
    comparing: bool = False  # whether an earlier bench was given

    @property
    def slow(self) -> tuple[Outlier, ...]:
        """Outliers that are worse than the others."""
        return tuple(outlier for outlier in self.outliers if outlier.off < 0)

    @property
    def worse(self) -> tuple[FigureChange, ...]:
        """Figures that are worse than in the earlier bench, beyond their spread."""
        return tuple(change for change in self.changes if change.judgement == "worse")

    @property
    def passed(self) -> bool:
        """No threshold missed, nothing worse; of an acceptance, no slow outlier and no trouble."""
        is_bad = self.accepting and bool(self.slow or self.troubles)
        return not (self.misses or self.worse or is_bad or self.has_nothing_common)

    @property
    def has_nothing_common(self) -> bool:
        """Whether an earlier bench was given and none of its figures is in this one."""
        return self.comparing and not self.changes


def judge(
    bench: Bench, thresholds: Thresholds | None = None, earlier: Bench | None = None
) -> BenchVerdict:
    """Judge a bench, by a machine type's thresholds and against an earlier one if given."""
    share = thresholds.outlier_share if thresholds else OUTLIER_SHARE
    return BenchVerdict(
        find_limits(bench),
        tuple(find_outliers(bench, share)),
        tuple(find_misses(bench.measures, thresholds)) if thresholds else (),
        tuple(find_changes(earlier, bench)) if earlier else (),
        tuple(find_troubles(bench)),
        tuple(find_remarks(bench)),
        thresholds is not None,
        earlier is not None,
    )
