"""`Run.importance` measures raw columns, regardless of the features that are made of them."""

import numpy as np
import pandas as pd
import pytest
import torch

import distrain

ROWS = 500
FEATURES = {
    "target": "bought",
    "columns": {
        "shop": {"kind": "categorical"},
        "price": {"kind": "continuous", "normalize": True},
        "price_bucket": {"from": "price", "kind": "categorical", "buckets": "log_square"},
        "price_mean": {"from": "price", "kind": "continuous", "target_mean": {"smoothing": 2}},
        "pair_rows": {
            "cross": ["shop", "day"],
            "hash_buckets": 100,
            "kind": "continuous",
            "count": True,
        },
    },
}


@pytest.mark.usefixtures("undrawn")
def test_importance_of_a_column_is_the_loss_if_it_is_shuffled_in_the_raw_rows(tmp_path):
    draw = np.random.default_rng(0)
    rows = pd.DataFrame(
        {
            "shop": [f"shop-{number}" for number in draw.integers(0, 9, ROWS)],
            "price": draw.integers(0, 40, ROWS),
            "day": draw.integers(0, 5, ROWS),
        }
    )
    rows["bought"] = (rows.price + draw.normal(0, 8, ROWS) > 20).astype(int)
    run = distrain.fit(rows, features=FEATURES, run_dir=tmp_path / "run")

    found = run.importance(rows, seed=3)
    order = torch.randperm(ROWS, generator=torch.Generator().manual_seed(3)).numpy()
    shuffled = rows.assign(price=rows.price.to_numpy()[order])
    loss = run.evaluate(rows).auc - run.evaluate(shuffled).auc

    assert next(iter(found.loss)) == "price"
    assert set(found.loss) == {"shop", "price", "day"}
    assert found.loss["price"] == pytest.approx(loss, abs=1e-9)
    assert loss > 0.1
