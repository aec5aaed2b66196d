"""More days for a fitted workflow: what they hold that it does not know, and learning it."""

from distrain.etl.days.drift import (
    DriftBounds as DriftBounds,
    Drifted as Drifted,
    drifted_columns as drifted_columns,
)
from distrain.etl.days.growing import kept_file as kept_file
from distrain.etl.days.lineage import (
    keep_counts_of as keep_counts_of,
    learnt_before as learnt_before,
    with_keep_counts as with_keep_counts,
    with_update as with_update,
)
from distrain.etl.days.seen import (
    Seen as Seen,
    Shares as Shares,
    mean_shifts as mean_shifts,
    seen_in as seen_in,
)
from distrain.etl.days.vocabularies import (
    VocabularyReport as VocabularyReport,
    learn_vocabularies as learn_vocabularies,
)
