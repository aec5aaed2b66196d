"""Checkpoints: the state of a training in one file per rank, for any placement and rank count."""

from distrain.train.checkpoint.checkpoint_dir import CheckpointDir as CheckpointDir
from distrain.train.checkpoint.loading import load_newest as load_newest
from distrain.train.checkpoint.rank_store import RankStore as RankStore
from distrain.train.checkpoint.training_state import TrainingState as TrainingState
from distrain.train.checkpoint.writer import CheckpointWriter as CheckpointWriter
