"""What bf16 costs in AUC, on rows whose labels follow a planted model."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from devices import on_gpu
from small_jobs import make_spec

from distrain.launch.inline import run_inline
from distrain.launch.job_handle import raise_for_state
from distrain.prep.synthetic.draw import CATEGORIES, CHUNK_ROWS, DrawnFeatures, draw_features
from distrain.prep.synthetic.planted import PlantedModel, Truth, probabilities
from distrain.schema import criteo_schema
from distrain.schema.criteo import CATEGORICAL

SEED, SCALE, CLICK_RATE = 0, 0.001, 0.25
CHUNKS = {"train": 4, "valid": 1}
BOUND = 0.002


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, float]:
    """Prepared rows, and the AUC on the validation rows that nobody can beat."""
    root = tmp_path_factory.mktemp("planted")
    model = PlantedModel.fit(SEED, SCALE, CLICK_RATE)
    for split, chunks in CHUNKS.items():
        (root / split).mkdir()
        truth = Truth()
        for chunk in range(chunks):
            features = draw_features(SEED, split, chunk, SCALE)
            logits = model.logits(features)
            labels = features.coin < probabilities(logits)
            truth.update(logits, labels.astype("int32"))
            columns = {"label": labels.astype("float32")}
            columns |= {name: prepared(features, name) for name in features.integers}
            columns |= {name: known(features, name) for name in CATEGORICAL}
            path = root / split / f"part-{chunk}.parquet"
            pq.write_table(pa.table(columns), path, row_group_size=CHUNK_ROWS // 8)
    criteo_schema({c.name: c.cardinality(SCALE) + 1 for c in CATEGORIES}).save(
        root / "schema.pbtxt"
    )
    return root, truth.summary(()).bayes_auc


def prepared(features: DrawnFeatures, name: str) -> np.ndarray:
    values = np.log1p(np.maximum(features.integers[name], 0))
    return np.where(features.missing.get(name, False), 0, values).astype("float32")


def known(features: DrawnFeatures, name: str) -> np.ndarray:
    return np.where(features.missing.get(name, False), 0, features.ids[name] + 1).astype("int32")


@on_gpu
@pytest.mark.parametrize("kind", ["mlp", "dlrm"])
def test_bf16_reaches_the_auc_of_fp32(
    device: str, kind: str, planted: tuple[Path, float], tmp_path: Path
) -> None:
    root, best = planted
    aucs = {}
    for precision in ("fp32", "bf16"):
        spec = make_spec(
            root,
            f"resources={{backend: inline, num_ranks: 1, device: {device}}}",
            f"model={{kind: {kind}, embedding_dim: 8}}",
            "train={global_batch_size: 1024, optimizer: {kind: adagrad, lr: 0.03}}",
            f"train.precision={precision}",
            "checkpoint.at_end=false",
        )
        views = []
        view = run_inline(spec, tmp_path / precision, "job", views.append)
        raise_for_state(view)
        (valid,) = [r for v in views for r in v.records if r.split == "valid"]
        aucs[precision] = valid.auc
    print(f"{kind}: {aucs}, at best {best:.4f}")
    assert abs(aucs["bf16"] - aucs["fp32"]) < BOUND
    assert min(aucs.values()) - 0.5 > 0.9 * (best - 0.5)
