"""Criteo-shaped data of any size whose best reachable AUC is known."""

from distrain.synth.generate import SynthProgress, SynthRequest, SynthResult, generate
from distrain.synth.planted import SplitSummary

__all__ = ["SplitSummary", "SynthProgress", "SynthRequest", "SynthResult", "generate"]
