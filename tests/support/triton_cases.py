"""Triton's kernels against their torch fallbacks, on any device: the interpreter or a GPU."""

import os
from contextlib import contextmanager, nullcontext

import torch

from distrain.jobs.optimizers import UPDATE_RULES
from distrain.models.blocks.functional import Linear
from distrain.models.blocks.interaction import PairProducts
from distrain.models.embeddings.kernels import fixed_shape as kernels_fixed
from distrain.models.embeddings.kernels.fixed_shape import segments_of
from distrain.models.embeddings.kernels.segments import RowRule, StepRates

KINDS = tuple(UPDATE_RULES)


def assert_close(found, expected, rtol, atol):
    # torch.testing imports half of torch, for seconds.
    assert found.shape == expected.shape
    assert found.dtype == expected.dtype
    assert torch.allclose(found, expected, rtol, atol), (found - expected).abs().max()


@contextmanager
def twins():
    """Inside, torch does the work."""
    before = os.environ.get("DISTRAIN_TRITON")
    os.environ["DISTRAIN_TRITON"] = "0"
    try:
        yield
    finally:
        if before is None:
            del os.environ["DISTRAIN_TRITON"]
        else:
            os.environ["DISTRAIN_TRITON"] = before


def check_lookup(device, stored, returned):
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(30, 5, generator=generator).to(device, stored)
    keys = torch.randint(0, 30, (3, 250), generator=generator, dtype=torch.int32).to(device)
    places = torch.tensor([3, 0, 1], device=device)
    found = torch.full((250, 4, 5), 7.0, device=device, dtype=returned)
    expected = found.clone()
    kernels_fixed.lookup(weight, keys, places, found)
    with twins():
        kernels_fixed.lookup(weight, keys, places, expected)
    assert torch.equal(found, expected)
    assert torch.equal(found[:, 3].cpu(), weight.cpu().to(returned)[keys[0].long().cpu()])


def sorted_places(device, num_rows, num_places, num_padding):
    """Places of `num_rows` rows, the first of which has half of them, and some of the padding."""
    generator = torch.Generator().manual_seed(1)
    keys = torch.randint(-num_rows, num_rows, (num_places,), generator=generator).clamp(min=0)
    keys = torch.cat([keys, torch.full((num_padding,), num_rows)]).to(device, torch.int32)
    segments = segments_of(keys, min(num_rows, num_places) + 3, num_rows)
    rows = torch.randn(len(keys), 6, generator=generator).to(device)
    return rows, segments


def check_segments(device, num_rows, num_places, num_padding):
    _, ours = sorted_places(device, num_rows, num_places, num_padding)
    with twins():
        _, theirs = sorted_places(device, num_rows, num_places, num_padding)
    assert ours.end == theirs.end
    assert all(torch.equal(a, b) for a, b in zip(ours[:4], theirs[:4], strict=True))


def check_sources(device, num_rows):
    places = torch.tensor([4, 0, 2], device=device)
    order = torch.randperm(3 * num_rows, generator=torch.Generator().manual_seed(4)).to(device)
    found = kernels_fixed.sources_of(order, num_rows, places, 5)
    expected = torch.arange(5 * num_rows, device=device).view(num_rows, 5).T[places].reshape(-1)
    assert torch.equal(found.long(), expected[order])


def check_sums(device, num_rows, num_places, num_padding):
    rows, segments = sorted_places(device, num_rows, num_places, num_padding)
    found = kernels_fixed.sum_segments(rows, segments.order, segments)
    expected = torch.zeros(len(segments.keys) + num_rows + 1, 6, dtype=torch.float64)
    slot_of = {key: slot for slot, key in reversed(list(enumerate(segments.keys.tolist())))}
    for key, row in zip(
        segments.in_order.tolist(), rows.double().cpu()[segments.order.cpu()], strict=True
    ):
        if key < num_rows:
            expected[slot_of[key]] += row
    if device == "cuda":
        assert torch.equal(found, kernels_fixed.sum_segments(rows, segments.order, segments))
    assert found.dtype == torch.float32
    assert_close(
        found.double().cpu(), expected[: len(found)], rtol=1e-5, atol=1e-6 * num_places**0.5
    )


def check_update(device, kind, stored, *, summed):
    """Both forms of the update; the segments are short, so that all sums run in one order."""
    rows, segments = sorted_places(device, 40, 90, 5)
    generator = torch.Generator().manual_seed(2)
    count = {"sgd": 0, "adam": 2}.get(kind, 1)
    shape = (40,) if kind == "rowwise_adagrad" else (40, 6)
    state = [torch.randn(40, 6, generator=generator).to(device, stored)]
    state += [torch.rand(shape, generator=generator).to(device) for _ in range(count)]
    numbers = [torch.tensor(x, dtype=torch.float64, device=device) for x in (0.1, 0.5)]
    rates = StepRates(numbers[0], numbers[1], torch.tensor(-77 * 2**40 + 5, device=device))
    rule = RowRule(kind, 1e-8, (0.9, 0.99))
    with twins():
        sums = kernels_fixed.sum_segments(rows, segments.order, segments)

    def updated():
        weight, *memory = (values.clone() for values in state)
        if summed:
            kernels_fixed.update_padded(rule, weight, tuple(memory), segments.keys, sums, rates)
        else:
            kernels_fixed.sum_and_update(
                rule, weight, tuple(memory), rows, segments.order, segments, rates
            )
        return weight, *memory

    found = updated()
    with twins():
        expected = updated()
    for ours, theirs, before in zip(found, expected, state, strict=True):
        assert not torch.equal(theirs, before)
        # A last bit of float32 may move a value across the draw between its neighbours.
        if ours.dtype == torch.bfloat16:
            assert (ours == theirs).float().mean() > 0.98
        tolerance = 1e-2 if ours.dtype == torch.bfloat16 else 1e-5
        assert_close(ours, theirs, rtol=tolerance, atol=tolerance)


def check_interaction(device, rows, num_vectors, dim, dtype):
    from distrain.models.blocks import interaction_triton

    generator = torch.Generator().manual_seed(3)
    ours = torch.randn(rows, num_vectors, dim, generator=generator).to(device, dtype)
    ours.requires_grad_()
    theirs = ours.detach().clone().requires_grad_()
    found = interaction_triton.pair_products(ours)
    with twins():
        expected = PairProducts(num_vectors).to(device)(theirs)
    grad = torch.randn(expected.shape, generator=generator).to(device, dtype)
    found.backward(grad)
    expected.backward(grad)
    tolerance = 1e-5 if dtype == torch.float32 else 2e-2
    assert_close(found, expected, rtol=tolerance, atol=tolerance * dim**0.5)
    assert_close(ours.grad, theirs.grad, rtol=tolerance, atol=tolerance * num_vectors**0.5)


def check_interaction_beside(device, rows, num_vectors, dim, dtype):
    """Of a vector of `dtype` and others of float32, as in DLRM under autocast."""
    generator = torch.Generator().manual_seed(3)
    deep = torch.randn(rows, dim, generator=generator).to(device, dtype)
    others = torch.randn(rows, num_vectors - 1, dim, generator=generator).to(device)
    pairs = PairProducts(num_vectors).to(device)
    linear = Linear(dim + pairs.num_pairs, 5).to(device)
    found = []
    for is_plain in (False, True):
        leaves = [one.clone().requires_grad_() for one in (deep, others)]
        with (
            twins() if is_plain else nullcontext(),
            torch.autocast(device, dtype, enabled=dtype != torch.float32),
        ):
            beside = pairs.beside(*leaves)
            output = linear(beside)
        grads = torch.autograd.grad(output.float().square().sum(), [*leaves, linear.weight])
        found.append((beside, output, *grads))
    is_padded = dtype != torch.float32 and found[0][0].shape[1] % 8 > 0
    assert hasattr(found[0][0], "padded") == is_padded
    tolerance = 1e-5 if dtype == torch.float32 else 2e-2
    for ours, theirs in zip(*found, strict=True):
        scale = float(theirs.detach().abs().max()) if theirs.numel() else 1.0
        assert_close(ours, theirs, rtol=tolerance, atol=tolerance * scale)
