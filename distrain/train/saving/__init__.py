"""Checkpoints and models of a training: when, what, and what can be resumed."""

from distrain.train.saving.checkpoint_model import open_model as open_model
from distrain.train.saving.checkpoints import (
    RankCheckpoints as RankCheckpoints,
    TrainingStart as TrainingStart,
    check_resumable as check_resumable,
    checkpoint_dir as checkpoint_dir,
    likely_start as likely_start,
)
from distrain.train.saving.early_stopping import Validations as Validations, is_over as is_over
from distrain.train.saving.stored_model import put_model as put_model
