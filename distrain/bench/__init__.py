"""Measures clusters and judges them: what limits a step, outliers, thresholds, changes."""

from distrain.bench.document import (
    Bench as Bench,
    Measure as Measure,
    bench_json as bench_json,
    load_bench as load_bench,
)
from distrain.bench.limits import find_limits as find_limits
from distrain.bench.machine import machine_of_bench as machine_of_bench
from distrain.bench.measuring import FULL as FULL, QUICK as QUICK, Sizes as Sizes
from distrain.bench.page import write_bench as write_bench
from distrain.bench.run import run_bench as run_bench
from distrain.bench.summary import summary_lines as summary_lines
from distrain.bench.thresholds import (
    find_outliers as find_outliers,
    load_thresholds as load_thresholds,
)
from distrain.bench.verdict import BenchVerdict as BenchVerdict, judge as judge
