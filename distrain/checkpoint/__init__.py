"""The state of a training, saved whole or not at all, for any placement and number of ranks.

    folder.py   named tensors and values as a folder that is checked when it is read
    dense.py    a module's and a torch optimizer's tensors by the parameters' names
    state.py    all that a training's future depends on: dense part, tables, optimizers

The training loop does not call this yet.
"""

from distrain.checkpoint.folder import load_folder, save_folder
from distrain.checkpoint.state import TrainingState

__all__ = ["TrainingState", "load_folder", "save_folder"]
