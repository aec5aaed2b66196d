"""The AUC of all ranks' rows from their scores: real gloo ranks against scikit-learn."""

from itertools import product
from pathlib import Path

import numpy as np
import pytest
from gloo_ranks import on_ranks
from loaded_scripts import load_script
from sklearn.metrics import roc_auc_score
from small_jobs import make_spec

from distrain.jobs.job_view import JobView, Notice, Record
from distrain.launch.inline import run_inline
from distrain.metrics.targets import STATES

script = load_script(Path(__file__).with_name("exact_auc_ranks.py"))


def test_ranks_agree_on_the_auc_that_one_would_compute() -> None:
    for num_ranks in script.SIZES:
        found = on_ranks(num_ranks, script.all_aucs)
        assert all(of_rank == found[0] for of_rank in found)
        labels = [script.rows_of("far", rank, num_ranks)[1] for rank in range(num_ranks)]
        assert found[0].pop("own") == np.concatenate(labels).mean()
        for kind, weighted in product(STATES, (False, True)):
            of_ranks = [script.state_of(kind, weighted, r, num_ranks) for r in range(num_ranks)]
            total = STATES[kind].from_json(*(one.to_json() for one in of_ranks))
            assert found[0].pop(f"{kind} {weighted}") == total.to_json()
        of_ranks = [script.rows_of("far", rank, num_ranks) for rank in range(num_ranks)]
        scores, labels = (np.concatenate(part) for part in zip(*of_ranks, strict=True))
        weights = np.concatenate([script.weights_of(len(one)) for one, _ in of_ranks])
        auc = roc_auc_score(labels, scores, sample_weight=weights)
        assert found[0].pop("weighted") == (pytest.approx(auc, rel=1e-12), 0.0)
        for case, auc in found[0].items():
            parts = [script.rows_of(case, rank, num_ranks) for rank in range(num_ranks)]
            scores, labels = (np.concatenate(part) for part in zip(*parts, strict=True))
            if case == "one class":
                assert auc is None
                continue
            value, bound = auc
            assert (bound > 0) == (case == "too many")
            assert abs(value - roc_auc_score(labels, scores)) <= bound + 1e-12


def test_a_validation_falls_back_to_the_scores_and_says_so_once(
    prepared: Path, tmp_path: Path
) -> None:
    def entries(folder: str, *overrides: str) -> list[object]:
        spec = make_spec(
            prepared,
            "resources={backend: inline, num_ranks: 1}",
            "train.max_steps=4",
            "evaluate.every_steps=2",
            *overrides,
        )
        views: list[JobView] = []
        run_inline(spec, tmp_path / folder, "job", views.append)
        return [entry for view in views for entry in view.progress]

    binned, exact = entries("binned"), entries("exact", "evaluate.max_auc_bound=0")
    assert not [entry for entry in binned if isinstance(entry, Notice)]
    (notice,) = [entry for entry in exact if isinstance(entry, Notice)]
    assert "validation at step 2" in notice.text
    assert "the rows were sorted by score" in notice.text
    assert not notice.is_warning  # nothing is to be done
    for one, other in zip(valid(binned), valid(exact), strict=True):
        assert one.auc_bound > 0
        assert other.auc_bound == 0
        assert abs(one.auc - other.auc) <= one.auc_bound
        assert (one.step, one.loss) == (other.step, other.loss)


def valid(entries: list[object]) -> list[Record]:
    return [entry for entry in entries if isinstance(entry, Record) and entry.split == "valid"]
