"""Measures clusters and judges them: what limits a step, outliers, thresholds, changes."""

from distrain.bench.changes import FigureChange as FigureChange, find_changes as find_changes
from distrain.bench.document import (
    SCHEMA_VERSION as SCHEMA_VERSION,
    Bench as Bench,
    Measure as Measure,
    Step as Step,
    bench_json as bench_json,
    parse_bench as parse_bench,
)
from distrain.bench.limits import (
    LOADER_RATE as LOADER_RATE,
    StepLimit as StepLimit,
    StepLimits as StepLimits,
    find_limits as find_limits,
    step_limits as step_limits,
)
from distrain.bench.machine import machine_of_bench as machine_of_bench
from distrain.bench.measuring import (
    FULL as FULL,
    QUICK as QUICK,
    Sizes as Sizes,
    measure_host_memory as measure_host_memory,
)
from distrain.bench.outliers import (
    OUTLIER_SHARE as OUTLIER_SHARE,
    Outlier as Outlier,
    find_outliers as find_outliers,
)
from distrain.bench.page import write_bench as write_bench, write_bench_page as write_bench_page
from distrain.bench.run import run_bench as run_bench
from distrain.bench.summary import headline as headline, summary_lines as summary_lines
from distrain.bench.thresholds import (
    Miss as Miss,
    Thresholds as Thresholds,
    find_misses as find_misses,
    parse_thresholds as parse_thresholds,
)
from distrain.bench.verdict import BenchVerdict as BenchVerdict, judge as judge
