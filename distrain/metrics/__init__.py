"""Metrics as states of constant size that update, merge across ranks, and compute."""

from distrain.metrics.binary import BinaryMetrics
from distrain.metrics.bins import BINS_PER_LOGIT, LOGIT_LIMIT, NUM_BINS, Counts, bin_of
from distrain.metrics.distinct_scores import Bounded, DistinctScores, Keys
from distrain.metrics.exchange_stats import ExchangeStats, add_up_exchanges, follow_up_exchanges
from distrain.metrics.grouped import GroupedReport, grouped_auc
from distrain.metrics.own import Metric, check_metric, metric_errors
from distrain.metrics.ranking import ItemLists, RankingMetrics, RankingReport, top_items
from distrain.metrics.reliability import reliability
from distrain.metrics.report import BinaryReport, area_under_roc

__all__ = [
    "BINS_PER_LOGIT",
    "BinaryMetrics",
    "BinaryReport",
    "Bounded",
    "Counts",
    "ExchangeStats",
    "GroupedReport",
    "ItemLists",
    "Keys",
    "LOGIT_LIMIT",
    "Metric",
    "NUM_BINS",
    "DistinctScores",
    "RankingMetrics",
    "RankingReport",
    "add_up_exchanges",
    "area_under_roc",
    "bin_of",
    "check_metric",
    "follow_up_exchanges",
    "grouped_auc",
    "metric_errors",
    "reliability",
    "top_items",
]
