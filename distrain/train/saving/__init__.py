"""Checkpoints and models of a training: when, what, and what can be resumed."""

from distrain.train.saving.checkpoint_model import open_model
from distrain.train.saving.checkpoints import Checkpoints, Start, checkpoint_dir, likely_start
from distrain.train.saving.early_stopping import Validations, is_over
from distrain.train.saving.resume_check import check_resumable
from distrain.train.saving.stored_model import put_model

__all__ = [
    "Checkpoints",
    "Start",
    "Validations",
    "check_resumable",
    "checkpoint_dir",
    "is_over",
    "likely_start",
    "open_model",
    "put_model",
]
