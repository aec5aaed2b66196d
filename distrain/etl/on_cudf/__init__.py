"""The operators on a GPU, by cuDF: a column goes there, through its group, and back.

Rows are read and written with Arrow, and what operators learn is learnt with Arrow. This has run on
no GPU yet.
"""

from distrain.etl.on_cudf.chain import (
    RunOnCudf as RunOnCudf,
    check_operators as check_operators,
    check_workers as check_workers,
)
