"""A new run takes its first weights from another: what fits where, and the copying.

The place in the data is not taken: the run begins at its first step. Optimizers' state is, if asked
for.
"""

from distrain.train.warm_start.matching import table_places as table_places
from distrain.train.warm_start.transfer import (
    check_warm_start as check_warm_start,
    take_weights as take_weights,
)
