"""A new run takes its first weights from another: what fits where, and the copying.

Optimizers and the place in the data are not taken: the run begins at its first step.
"""

from distrain.train.warm_start.matching import table_places as table_places
from distrain.train.warm_start.transfer import (
    check_warm_start as check_warm_start,
    take_weights as take_weights,
)
