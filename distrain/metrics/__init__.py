"""Metrics as states of constant size that update, merge across ranks, and compute."""

from distrain.metrics.binary import BinaryMetrics as BinaryMetrics
from distrain.metrics.bins import (
    BINS_PER_LOGIT as BINS_PER_LOGIT,
    LOGIT_LIMIT as LOGIT_LIMIT,
    NUM_BINS as NUM_BINS,
    Counts as Counts,
    Weights as Weights,
    bin_of as bin_of,
)
from distrain.metrics.distinct_scores import (
    Bounded as Bounded,
    DistinctScores as DistinctScores,
    Keys as Keys,
)
from distrain.metrics.exchange_stats import (
    ExchangeStats as ExchangeStats,
    add_up_exchanges as add_up_exchanges,
    follow_up_exchanges as follow_up_exchanges,
)
from distrain.metrics.grouped import (
    GroupedReport as GroupedReport,
    grouped_metrics as grouped_metrics,
)
from distrain.metrics.multiclass import (
    TOP_K as TOP_K,
    MulticlassMetrics as MulticlassMetrics,
    MulticlassReport as MulticlassReport,
    rows_at_once as rows_at_once,
)
from distrain.metrics.own import (
    Metric as Metric,
    check_metric as check_metric,
    metric_errors as metric_errors,
)
from distrain.metrics.ranking import (
    ItemLists as ItemLists,
    RankingMetrics as RankingMetrics,
    RankingReport as RankingReport,
    TopItems as TopItems,
    top_items as top_items,
)
from distrain.metrics.regression import (
    ERROR_BINS as ERROR_BINS,
    ERROR_SHIFT as ERROR_SHIFT,
    QUANTILE_BOUND as QUANTILE_BOUND,
    RegressionMetrics as RegressionMetrics,
    RegressionReport as RegressionReport,
)
from distrain.metrics.reliability import reliability as reliability
from distrain.metrics.report import BinaryReport as BinaryReport, area_under_roc as area_under_roc
from distrain.metrics.state import Parts as Parts, State as State
from distrain.metrics.targets import STATES as STATES, TargetMetrics as TargetMetrics
