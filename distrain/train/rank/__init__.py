"""A rank's process: events out, commands in, failures explained."""

from distrain.train.rank.process import run_rank as run_rank
