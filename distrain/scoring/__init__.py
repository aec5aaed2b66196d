"""Scores and metrics of a saved model on parquet files."""

from distrain.scoring.drift import (
    DRIFTED as DRIFTED,
    column_drift as column_drift,
    training_rows as training_rows,
)
from distrain.scoring.ensembling import (
    ensemble_of as ensemble_of,
    write_ensemble as write_ensemble,
)
from distrain.scoring.evaluation import (
    check_group as check_group,
    evaluate_groups as evaluate_groups,
    evaluate_saved as evaluate_saved,
    time_column as time_column,
)
from distrain.scoring.importance import column_importance as column_importance
from distrain.scoring.in_memory import evaluate_rows as evaluate_rows, score_rows as score_rows
from distrain.scoring.logits import (
    Scorer as Scorer,
    ScorerInProcess as ScorerInProcess,
    ScorerOnCluster as ScorerOnCluster,
)
from distrain.scoring.prediction import (
    PredictRequest as PredictRequest,
    PredictResult as PredictResult,
    check_request as check_request,
    finished_scores as finished_scores,
    predict as predict,
)
from distrain.scoring.raw import RawOptions as RawOptions, labelled_rows as labelled_rows
from distrain.scoring.resuming import kept_logits as kept_logits
from distrain.scoring.retrieval import (
    Index as Index,
    check_index as check_index,
    evaluate_retrieval as evaluate_retrieval,
    table_of_items as table_of_items,
    write_towers as write_towers,
)
from distrain.scoring.serving import Written as Written, export_folder as export_folder
