"""What a run leaves for people: the files of its run directory."""

from distrain.report.recorder import RunRecorder, open_run
from distrain.report.summary import Summary, summarise

__all__ = ["RunRecorder", "Summary", "open_run", "summarise"]
