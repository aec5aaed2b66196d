"""Evaluates a bench; no I/O."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from distrain.diagnostics.bench.comparison import common_measures, find_changes
from distrain.diagnostics.bench.limits import find_limits
from distrain.diagnostics.bench.results import Bench, BenchFinding
from distrain.diagnostics.bench.thresholds import (
    OUTLIER_SHARE,
    Thresholds,
    find_misses,
    find_outliers,
)


@dataclass(frozen=True)
class BenchVerdict:
    limits: Mapping[str, float]  # the result of `find_limits`
    # by kind: `misses` of thresholds, `outliers`, and `changes` since an earlier bench
    findings: Mapping[str, list[BenchFinding]]

    @property
    def failures(self) -> list[BenchFinding]:
        return [one for found in self.findings.values() for one in found if one.fails]

    @property
    def passed(self) -> bool:
        return not self.failures


def judge(
    bench: Bench, thresholds: Thresholds | None = None, earlier: Bench | None = None
) -> BenchVerdict:
    """Return the verdict on a bench, by thresholds and against an earlier bench, if given.

    Failures are missed thresholds, measures that are worse than before, and an earlier bench
    without a common measure. With thresholds, slow outliers are failures, too.
    """
    share = thresholds.outlier_share if thresholds else OUTLIER_SHARE
    accepts = thresholds is not None
    findings = {
        "misses": [*find_misses(bench.measures, thresholds)] if thresholds else [],
        "outliers": [
            replace(one, fails=accepts and one.gain < 0) for one in find_outliers(bench, share)
        ],
        "changes": find_changes(earlier, bench) if earlier else [],
    }
    if earlier and not common_measures(earlier, bench):
        text = "the earlier bench has no common measure: another mode, device or nodes"
        findings["changes"].append(BenchFinding("earlier bench", "", text, fails=True))
    return BenchVerdict(find_limits(bench), findings)
