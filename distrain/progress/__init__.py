"""Ranks' events merged into a job's entries, kept on disk, and merged again from there."""

from distrain.progress.collector import Collector
from distrain.progress.kept_reports import ReportQueue, ReportWriter, remove_reports
from distrain.progress.merging import stall_pct
from distrain.progress.replay import replay_reports
from distrain.progress.report_file import read_reports, tail_offset
from distrain.progress.seconds import WindowJoiner

__all__ = [
    "Collector",
    "ReportQueue",
    "ReportWriter",
    "WindowJoiner",
    "tail_offset",
    "remove_reports",
    "read_reports",
    "replay_reports",
    "stall_pct",
]
