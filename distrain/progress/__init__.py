"""Ranks' events merged into a job's entries, kept on disk, and merged again from there."""

from distrain.progress.collector import Collector as Collector
from distrain.progress.kept_reports import (
    ReportQueue as ReportQueue,
    ReportWriter as ReportWriter,
    remove_reports as remove_reports,
)
from distrain.progress.merging import (
    ReportJoiner as ReportJoiner,
    add_up as add_up,
    phase_shares as phase_shares,
    stall_pct as stall_pct,
)
from distrain.progress.replay import replay_reports as replay_reports
from distrain.progress.report_file import read_reports as read_reports, tail_offset as tail_offset
