"""What the benchmark of steps counts, against torch's own counter and against a count by hand."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.step_bench import contender, dense, roofline
from distrain.jobs.spec import DcnV2Spec, DlrmSpec, MlpSpec
from distrain.models import build_model
from distrain.schema import criteo_schema
from distrain.schema.criteo import CATEGORICAL

ROWS = 8


def model_of(setup, dense):
    spec = {
        "mlp": lambda: MlpSpec(embedding_dim=setup.dim, hidden=dense.HIDDEN),
        "dlrm": lambda: DlrmSpec(embedding_dim=setup.dim, bottom=dense.BOTTOM, top=dense.TOP),
        "dcn_v2": lambda: DcnV2Spec(
            embedding_dim=setup.dim, cross_depth=dense.CROSSES, hidden=dense.DEEP
        ),
    }[setup.model]()
    return build_model(criteo_schema(dict.fromkeys(CATEGORICAL, 1)), spec, seed=0)


@pytest.mark.parametrize("model", ["mlp", "dlrm", "dcn_v2"])
@pytest.mark.parametrize("dim", [16, 64, 128])
def test_flops_are_those_that_torch_counts(model, dim):
    setup = contender.Setup(model, dim)
    module = model_of(setup, dense).dense
    leaf = torch.randn(ROWS, len(CATEGORICAL), dim, requires_grad=True)
    with FlopCounterMode(display=False) as counter:
        module((leaf,), torch.randn(ROWS, 13)).sum().backward()
    cost = roofline.step_cost(setup, ROWS, distinct=5)
    assert cost.flops == counter.get_total_flops()


def test_bytes_of_a_path_by_hand():
    # 3 rows with 26 ids of 4 bytes. The leaf, 26 x 2 values of 4 bytes a row, is written, and its
    # gradient read. Of 10 distinct rows of 8 bytes: the lookup reads the weight; sums are written
    # and read; the update reads and writes the weight, and Adagrad's sum of 8 bytes.
    by_hand = 3 * 26 * 4 + 2 * 3 * 26 * 2 * 4 + 10 * (8 + 2 * 8 + 2 * 8 + 2 * 8)
    cost = roofline.step_cost(contender.Setup("path", 2, "adagrad"), 3, distinct=10)
    assert cost == roofline.Cost(by_hand, 0)
