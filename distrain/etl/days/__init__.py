"""More days for a fitted workflow: what they hold that it does not know, and learning it."""

from distrain.etl.days.growing import kept_file as kept_file
from distrain.etl.days.seen import (
    UPDATES as UPDATES,
    DriftBounds as DriftBounds,
    Drifted as Drifted,
    Seen as Seen,
    Shares as Shares,
    drifted_columns as drifted_columns,
    learnt_before as learnt_before,
    seen_in as seen_in,
)
from distrain.etl.days.vocabularies import (
    VocabularyReport as VocabularyReport,
    learn_vocabularies as learn_vocabularies,
)
