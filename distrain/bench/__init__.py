"""Measures hosts' memory, and judges benches of clusters: limits, outliers, thresholds, changes."""

from distrain.bench.changes import Change, find_changes
from distrain.bench.document import SCHEMA_VERSION, Bench, Measure, Step, bench_json, parse_bench
from distrain.bench.host_memory import measure_host_memory
from distrain.bench.limits import LOADER_RATE, Limit, Limits, find_limits, step_limits
from distrain.bench.outliers import OUTLIER_SHARE, Outlier, find_outliers
from distrain.bench.page import write_bench_page
from distrain.bench.summary import headline, summary_lines
from distrain.bench.thresholds import Miss, Thresholds, find_misses, parse_thresholds
from distrain.bench.verdict import Verdict, judge

__all__ = [
    "Bench",
    "Change",
    "LOADER_RATE",
    "Limit",
    "Limits",
    "Measure",
    "Miss",
    "OUTLIER_SHARE",
    "Outlier",
    "SCHEMA_VERSION",
    "Step",
    "Thresholds",
    "Verdict",
    "bench_json",
    "find_changes",
    "find_limits",
    "find_misses",
    "find_outliers",
    "headline",
    "judge",
    "measure_host_memory",
    "parse_bench",
    "parse_thresholds",
    "step_limits",
    "summary_lines",
    "write_bench_page",
]
