"""GPUs in a bench: what is measured, on CPU tensors."""

import pytest
import torch

from distrain.diagnostics.bench.measuring.gpus import product_rates, rates_of

WORDS = {"gpu_bytes": 4096, "product_rows": 16, "product_s": 0.01, "repeats": 3}


@pytest.mark.slow
def test_every_rate_is_measured_as_often_as_asked() -> None:
    rates = rates_of(torch.device("cpu"), WORDS)
    assert rates.keys() == {"gpu.copy", "gpu.triad", "gpu.from_host", "gpu.to_host"}
    for values in (*rates.values(), product_rates(torch.device("cpu"), WORDS)):
        assert len(values) == 3
        assert all(value > 0 for value in values)
