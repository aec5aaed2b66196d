"""The dense part of a step, in one process."""

import random
from functools import partial
from inspect import signature

import numpy as np
import pytest
import torch
from click_models import mlp_network
from hypothesis import given, settings, strategies as st
from torch import nn
from torch.optim import SGD, Adagrad, Adam, AdamW
from torch_checks import one_thread as one_thread, one_torch_thread

from distrain.errors import ModelError, SpecError
from distrain.jobs.optimizers import OPTIMIZERS
from distrain.jobs.spec import TrainSpec
from distrain.jobs.spec.training import OptimizerSpec
from distrain.train.control.rank_setup import seed_everything
from distrain.train.step.clipping import total_sq_norm
from distrain.train.step.dense import DenseTraining
from distrain.train.step.gradient_sync import FlatParameters
from distrain.train.step.precision import arithmetic, check_precision

BETAS, EPS, WEIGHT_DECAY = (0.8, 0.95), 1e-7, 0.3
TORCH = {
    "sgd": lambda p, **o: SGD(p, lr=1.0, **o),
    "adagrad": lambda p, **o: Adagrad(p, lr=1.0, eps=EPS, **o),
    "rowwise_adagrad": lambda p, **o: Adagrad(p, lr=1.0, eps=EPS, **o),
    "adam": lambda p, **o: Adam(p, lr=1.0, betas=BETAS, eps=EPS, **o),
    "adamw": lambda p, **o: AdamW(p, lr=1.0, betas=BETAS, eps=EPS, weight_decay=WEIGHT_DECAY, **o),
}
KINDS = tuple(OPTIMIZERS)
FUSED = [
    kind
    for kind, facts in OPTIMIZERS.items()
    if "fused" in signature(getattr(torch.optim, facts.dense_class)).parameters
]
SHAPES = st.lists(
    st.lists(st.integers(1, 9), min_size=1, max_size=2).map(tuple), min_size=1, max_size=4
)


class Bag(nn.Module):
    """Parameters of any shapes."""

    def __init__(self, shapes, dtype):
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.values = nn.ParameterList(
            nn.Parameter(torch.randn(shape, generator=generator, dtype=dtype)) for shape in shapes
        )


def optimizer_spec(kind):
    decay = WEIGHT_DECAY if "weight_decay" in OPTIMIZERS[kind].dense_options else None
    return OptimizerSpec(kind=kind, betas=BETAS, eps=EPS, weight_decay=decay)


def updated(kind, shapes, dtype, rate=None, **options):
    """The parameters after four steps by `DenseTraining`, and by torch's optimizer on each.

    `rate` is a tensor for the learning rate, as on a GPU.
    """
    ours, theirs = Bag(shapes, dtype), Bag(shapes, dtype)
    dense = DenseTraining(ours, TrainSpec(optimizer=optimizer_spec(kind)))
    dense.optimizer._lr = rate
    optimizer = TORCH[kind](theirs.parameters(), **options)
    generator = torch.Generator().manual_seed(1)
    for step in range(4):
        optimizer.param_groups[0]["lr"] = 0.1 / (1 + step)
        for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
            mine.grad += torch.randn(mine.shape, generator=generator, dtype=dtype)
            other.grad = mine.grad.clone()
        dense.step(0.1 / (1 + step))
        optimizer.step()
        dense.zero_grad()
    return list(ours.parameters()), list(theirs.parameters())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", FUSED)
def test_a_flat_update_is_bitwise_that_of_torchs_fused_optimizer_on_each_parameter(
    kind, dtype, one_thread
):
    # Where a parameter ends within a vector register the kernel's last values round otherwise.
    ours, theirs = updated(kind, [(128, 48), (48,), (16, 3)], dtype, fused=True)
    assert all(map(torch.equal, ours, theirs))


@settings(max_examples=20, deadline=None)
@given(shapes=SHAPES, kind=st.sampled_from(KINDS))
def test_a_flat_update_is_that_of_torchs_optimizer_on_each_parameter(shapes, kind):
    ours, theirs = updated(kind, shapes, torch.float64, foreach=False)
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-13, atol=1e-13)


@settings(max_examples=20, deadline=None)
@given(shapes=SHAPES)
def test_sgd_of_a_gpu_is_that_of_torch(shapes):
    rate = torch.zeros((), dtype=torch.float64)
    ours, theirs = updated("sgd", shapes, torch.float64, rate, foreach=False)
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-13, atol=1e-13)


@settings(max_examples=25, deadline=None)
@given(shapes=SHAPES)
def test_flat_parameters_keep_their_values_and_cover_the_vector(shapes):
    module, plain = Bag(shapes, torch.float64), Bag(shapes, torch.float64)
    flat = FlatParameters(module)
    for mine, other in zip(module.parameters(), plain.parameters(), strict=True):
        assert torch.equal(mine, other)
        assert mine.data_ptr() % 64 == flat.vector.data_ptr() % 64
    flat.vector.data.fill_(2.0)
    flat.grads.fill_(3.0)
    assert all((p == 2.0).all() and (p.grad == 3.0).all() for p in module.parameters())
    flat.grads.zero_()
    sum((p * p).sum() for p in module.parameters()).backward()
    count = sum(p.numel() for p in plain.parameters())
    assert flat.grads.sum() == 4.0 * count  # autograd wrote into the vector, and nowhere else
    assert float(total_sq_norm([flat.grads])) == pytest.approx(16.0 * count)


def test_a_module_that_cannot_be_trained_is_refused(wording):
    two_types = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2).double()])
    for module in (nn.Linear(2, 1).requires_grad_(False), nn.Identity(), two_types):
        wording.refused(ModelError, partial(DenseTraining, module, TrainSpec()))


def test_frozen_parameters_beside_others_stay():
    module = nn.Sequential(nn.Linear(2, 2).requires_grad_(False), nn.Linear(2, 1))
    before = [p.detach().clone() for p in module.parameters()]
    dense = DenseTraining(module, TrainSpec.model_validate({"optimizer": {"kind": "sgd"}}))
    dense.backward(module(torch.ones(3, 2)).sum())
    dense.step(0.1)
    changed = [not torch.equal(p, b) for p, b in zip(module.parameters(), before, strict=True)]
    assert changed == [False, False, True, True]


def small_inputs(rows, seed=0):
    generator = torch.Generator().manual_seed(seed)
    embedded = torch.randn(rows, 4, 8, generator=generator).requires_grad_()
    return (embedded,), torch.randn(rows, 5, generator=generator)


def small_dense(train, rows=512):
    torch.manual_seed(3)
    return DenseTraining(mlp_network(32, 5, (64, 32)), train), *small_inputs(rows)


def test_bf16_is_close_to_fp32_and_keeps_parameters_and_loss_in_fp32():
    outcomes = {}
    for precision in ("fp32", "bf16"):
        dense, embedded, continuous = small_dense(TrainSpec(precision=precision))
        logits = dense.forward(embedded, continuous)
        dense.backward(logits.square().mean())
        assert logits.dtype == torch.float32
        assert dense.optimizer.vector.dtype == torch.float32
        (leaf,) = embedded
        assert leaf.grad.dtype == torch.float32
        outcomes[precision] = logits.detach(), leaf.grad, dense.grad_sq_norm().sqrt()
    for single, half in zip(outcomes["fp32"], outcomes["bf16"], strict=True):
        assert not torch.equal(single, half)
        # 8 bits of mantissa, a few layers, and some inputs of ReLUs on the other side of 0
        assert (single - half).norm() < 0.1 * single.norm()


def test_tf32_is_refused_without_a_gpu(wording):
    wording.refused(SpecError, lambda: small_dense(TrainSpec(precision="tf32")))
    for fine in ("fp32", "bf16"):
        check_precision(fine, torch.device("cpu"))


@pytest.mark.skipif(
    not hasattr(torch.backends.cuda.matmul, "fp32_precision"), reason="torch before 2.9"
)
def test_tf32_holds_inside_the_dense_part_only():
    def products():
        return torch.backends.cuda.matmul.fp32_precision

    torch.backends.cuda.matmul.allow_tf32 = False
    before = products()
    with arithmetic("fp32", torch.device("cuda")):
        assert products() == before
    with arithmetic("tf32", torch.device("cuda")):
        assert torch.backends.cuda.matmul.fp32_precision == "tf32"
        # Which torch's compiler reads beside the other; a mixture of both would be an error here.
        assert torch.get_float32_matmul_precision() == "high"
        assert torch.backends.cuda.matmul.allow_tf32
    assert products() == before

    def fail():
        with arithmetic("tf32", torch.device("cuda")):
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert products() == before


def test_torchs_deterministic_switch_holds_inside_the_dense_part_only(monkeypatch):
    class Watched(nn.Linear):
        def forward(self, embedded, continuous):  # type: ignore[override]
            seen.append(torch.are_deterministic_algorithms_enabled())
            return super().forward(continuous).squeeze(1)

    seen = []
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    with one_torch_thread(), torch.random.fork_rng(devices=[]):
        states = random.getstate(), np.random.get_state()
        seed_everything(0, 0, torch.device("cuda"))
        random.setstate(states[0])
        np.random.set_state(states[1])
        dense = DenseTraining(Watched(3, 1), TrainSpec())
        dense.device = torch.device("cuda")  # all that the switch looks at
        assert not torch.are_deterministic_algorithms_enabled()
        logits = dense.forward((), torch.ones(2, 3))
        logits.register_hook(
            lambda _: seen.append(torch.are_deterministic_algorithms_enabled()) or None
        )
        assert not torch.are_deterministic_algorithms_enabled()
        dense.backward(logits.sum())
    assert seen == [True, True]
    assert not torch.are_deterministic_algorithms_enabled()
    assert torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
