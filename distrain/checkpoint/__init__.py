"""The state of a training, saved whole or not at all, for any placement and number of ranks.

board.py     how the ranks tell each other what they wrote
place.py     the checkpoints side by side, and which of them are whole
ownership.py whose a place is
writer.py    all ranks write one, mostly while they train on
loading.py   all ranks load the newest that is whole
dense.py     a module's and a torch optimizer's tensors by the parameters' names
state.py     all that a training's future depends on: dense part, tables, optimizers
"""

from distrain.checkpoint.board import Board, LocalBoard
from distrain.checkpoint.loading import Loaded, load_newest
from distrain.checkpoint.ownership import (
    check_owner,
    claim_place,
    claim_together,
    release_place,
)
from distrain.checkpoint.place import CheckpointPlace, Entry
from distrain.checkpoint.state import TrainingState
from distrain.checkpoint.writer import CheckpointWriter, Saved
from distrain.errors import Unavailable

__all__ = [
    "Board",
    "CheckpointPlace",
    "CheckpointWriter",
    "Entry",
    "Loaded",
    "LocalBoard",
    "Saved",
    "TrainingState",
    "Unavailable",
    "check_owner",
    "claim_place",
    "claim_together",
    "load_newest",
    "release_place",
]
