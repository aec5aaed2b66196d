"""Every model of the zoo learns, and what is saved of it scores bit by bit as it does."""

import pytest
import torch

from distrain.jobs.spec import (
    DcnSpec,
    DcnV2Spec,
    DeepFmSpec,
    DlrmSpec,
    MlpSpec,
    TrainSpec,
    WideDeepSpec,
)
from distrain.jobs.spec.models.interactions import (
    AutoIntSpec,
    FinalMlpSpec,
    MaskNetSpec,
    XDeepFmSpec,
)
from distrain.jobs.spec.models.kinds import CrossSpec, DlrmCrossSpec, GdcnSpec, TabularSpec
from distrain.models import build_model, load_model
from distrain.models.saved_model import save_model
from distrain.train.step.step import TrainStep
from distrain.train.timing.phases import PhaseClock

CROSSES = (CrossSpec(columns=("c0", "c1"), num_bins=50),)
SPECS = [
    AutoIntSpec(embedding_dim=4, layers=2, width=8, hidden=(16,), dropout=0.1),
    DcnSpec(embedding_dim=None, hidden=(16,)),
    DcnV2Spec(embedding_dim=4, hidden=(16,), low_rank=3),
    DeepFmSpec(embedding_dim=4, hidden=(16,), dropout=0.1),
    DlrmSpec(embedding_dim=4, bottom=(8,), top=(16,)),
    DlrmCrossSpec(embedding_dim=4, bottom=(8,), top=(16,), crosses=CROSSES),
    FinalMlpSpec(embedding_dim=4, gates=(8,), first=(16,), second=(16,), dropout=0.1),
    GdcnSpec(embedding_dim=None, hidden=(16,)),
    MlpSpec(embedding_dim=None, hidden=(16,)),
    MlpSpec(embedding_dim=4, hidden=(16,), members=3),
    MaskNetSpec(embedding_dim=4, masks=(16, 8), hidden=(16,), dropout=0.1),
    TabularSpec(hidden=(16, 8), dropout=0.1, embedding_dropout=0.1),
    WideDeepSpec(embedding_dim=4, hidden=(16,), crosses=CROSSES),
    XDeepFmSpec(embedding_dim=4, maps=(8, 4), hidden=(16,), dropout=0.1),
]


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.kind)
def test_it_learns_by_heart_and_is_saved_as_it_is(schema_and_batch, spec, tmp_path):
    schema, batch = schema_and_batch(5, 3, 200)
    model = build_model(schema, spec, seed=0).train()
    train = TrainSpec.model_validate({"optimizer": {"kind": "adagrad", "lr": 0.1}})
    step = TrainStep(model, train, 1)
    tables = [weight.clone() for weight in model.embeddings.weights]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        losses = [
            float(step(batch, batch.num_rows, 0.1, PhaseClock())[1]) / batch.num_rows
            for _ in range(20)
        ]
    assert losses[0] == pytest.approx(0.69, abs=0.2)
    assert losses[-1] < 0.85 * losses[0]
    assert not any(
        torch.equal(*pair) for pair in zip(tables, model.embeddings.weights, strict=True)
    )
    save_model(tmp_path / "model", model, spec, schema)
    loaded = load_model(tmp_path / "model")
    assert loaded.spec == spec
    saved = model.dense.state_dict()
    for name, values in loaded.model.dense.state_dict().items():
        assert torch.equal(values, saved[name]), name
    with torch.no_grad():
        assert torch.equal(loaded.model.eval()(batch), model.eval()(batch))


@pytest.mark.parametrize("rows", [0, 1])
@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.kind)
def test_a_step_of_no_row_or_one_keeps_all_finite(schema_and_batch, spec, rows):
    schema, batch = schema_and_batch(5, 3, rows)
    model = build_model(schema, spec, seed=0).train()
    before = {name: values.clone() for name, values in model.state_dict().items()}
    step = TrainStep(model, TrainSpec(), 1)
    (logits,), loss = step(batch, 8, 0.1, PhaseClock())
    assert logits.shape == (rows,)
    assert loss.isfinite()
    for name, values in model.state_dict().items():
        assert values.isfinite().all(), name
        if rows == 0:
            assert torch.equal(values, before[name]), name
