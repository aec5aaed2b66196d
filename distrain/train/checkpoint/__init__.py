"""Checkpoints: one file per rank, which any placement of tables and number of ranks can load."""

from distrain.train.checkpoint.checkpoint_dir import CheckpointDir as CheckpointDir
from distrain.train.checkpoint.loading import load_newest as load_newest
from distrain.train.checkpoint.rank_store import RankStore as RankStore
from distrain.train.checkpoint.training_state import TrainingState as TrainingState
from distrain.train.checkpoint.writer import CheckpointWriter as CheckpointWriter
