"""Measures clusters and judges them: what limits a step, outliers, thresholds, changes."""

from distrain.bench.changes import Change, find_changes
from distrain.bench.document import (
    SCHEMA_VERSION,
    Bench,
    Measure,
    Step,
    bench_json,
    parse_bench,
)
from distrain.bench.limits import LOADER_RATE, Limit, Limits, find_limits, step_limits
from distrain.bench.machine import machine_of_bench
from distrain.bench.measuring import FULL, QUICK, Sizes, measure_host_memory
from distrain.bench.outliers import OUTLIER_SHARE, Outlier, find_outliers
from distrain.bench.page import write_bench, write_bench_page
from distrain.bench.run import run_bench
from distrain.bench.summary import headline, summary_lines
from distrain.bench.thresholds import Miss, Thresholds, find_misses, parse_thresholds
from distrain.bench.verdict import Verdict, judge

__all__ = [
    "Bench",
    "Change",
    "FULL",
    "LOADER_RATE",
    "Limit",
    "Limits",
    "Measure",
    "Miss",
    "OUTLIER_SHARE",
    "Outlier",
    "QUICK",
    "SCHEMA_VERSION",
    "Sizes",
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
    "machine_of_bench",
    "measure_host_memory",
    "parse_bench",
    "parse_thresholds",
    "run_bench",
    "step_limits",
    "summary_lines",
    "write_bench",
    "write_bench_page",
]
