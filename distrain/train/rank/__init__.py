"""A rank's process: events out, commands in, failures explained."""

from distrain.train.rank.process import run_rank

__all__ = ["run_rank"]
