"""Criteo-shaped data of any size whose best reachable AUC is known."""

from distrain.synth.generate import (
    SynthProgress as SynthProgress,
    SynthRequest as SynthRequest,
    SynthResult as SynthResult,
    generate as generate,
)
from distrain.synth.planted import SplitSummary as SplitSummary
