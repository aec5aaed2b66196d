"""A new run that begins with another's weights.

layout.py        where each table's rows lie in the canonical form
vocabularies.py  what the ids of a table's data mean, and which files say so
matching.py      what of the other's weights goes where, or why it does not
source.py        a saved model or a checkpoint, read slab by slab
taking.py        each rank puts the rows that it holds into its model

Optimizers and the place in the data are not taken: the run begins at its first step.
"""

from distrain.train.warm_start.taking import check_warm_start, take_weights
from distrain.train.warm_start.vocabularies import Vocabularies, find_vocabularies

__all__ = ["Vocabularies", "check_warm_start", "find_vocabularies", "take_weights"]
