"""Criteo-shaped data of any size whose best reachable AUC is known."""

from distrain.synth.generate import generate
from distrain.synth.request import SplitSummary, SynthProgress, SynthRequest, SynthResult

__all__ = ["SplitSummary", "SynthProgress", "SynthRequest", "SynthResult", "generate"]
