"""Metrics as states of constant size that update, merge across ranks, and compute."""

from distrain.metrics.binary import BinaryMetrics as BinaryMetrics
from distrain.metrics.custom import Metric as Metric
from distrain.metrics.exchange_stats import ExchangeStats as ExchangeStats
from distrain.metrics.grouped import GroupedReport as GroupedReport
from distrain.metrics.multiclass import MulticlassReport as MulticlassReport
from distrain.metrics.ranking import (
    ItemLists as ItemLists,
    RankingMetrics as RankingMetrics,
    RankingReport as RankingReport,
    TopItems as TopItems,
    top_items as top_items,
)
from distrain.metrics.regression import RegressionReport as RegressionReport
from distrain.metrics.report import BinaryReport as BinaryReport
