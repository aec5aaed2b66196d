"""The dot products of all pairs of a row's vectors, in Triton, for NVIDIA GPUs.

The torch fallback, `interaction.PairProducts`, computes and stores all n*n products and selects
half of them. Here a Triton program reads one row's vectors and stores only the pairs. Import this
module only if `runs_triton` allows it: it needs the package `triton`.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from distrain.models.blocks.functional import ALIGNED, pads, without_padding


def pair_products(vectors: Tensor) -> Tensor:
    """Return the result of `interaction.PairProducts` for `vectors`, `[rows, n, dim]`.

    n is at most 64. The result has the vectors' dtype, or under autocast its dtype.
    """
    products: Tensor = _PairProducts.apply(None, vectors)  # type: ignore[no-untyped-call]
    return products


def pairs_beside(deep: Tensor, others: Tensor) -> Tensor:
    """Return `deep`, then the dot products of all pairs of a row's vectors, `[rows, dim + pairs]`.

    A row has n vectors, at most 64: one in `deep`, `[rows, dim]`, then those in `others`, `[rows,
    n - 1, dim]`. The two are not concatenated first.
    """
    _, count, dim = others.shape
    result: Tensor = _PairProducts.apply(deep, others)  # type: ignore[no-untyped-call]
    return without_padding(result, dim + count * (count + 1) // 2)


class _PairProducts(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, deep: Tensor | None, others: Tensor) -> Tensor:
        vectors, n = _contiguous(deep, others)
        ctx.save_for_backward(*vectors)
        ctx.has_deep = deep is not None
        rows, _, dim = others.shape
        dtype = others.dtype
        if torch.is_autocast_enabled(others.device.type):
            dtype = torch.get_autocast_dtype(others.device.type)
        width = n * (n - 1) // 2 + dim * ctx.has_deep
        if ctx.has_deep and pads(others):
            width += -width % ALIGNED
        out = torch.empty(rows, width, dtype=dtype, device=others.device)
        if rows:
            options = _options(n, dim, dtype)
            _forward[(rows,)](*vectors, out, n, dim, width, DEEP=ctx.has_deep, **options)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor]:
        deep, others = ctx.saved_tensors
        rows, count, dim = others.shape
        n = count + ctx.has_deep
        result = torch.empty_like(others)
        of_deep = torch.empty_like(deep) if ctx.has_deep else result
        if rows:
            tensors = deep, others, grad.contiguous(), of_deep, result
            options = _options(n, dim, grad.dtype)
            _backward[(rows,)](*tensors, n, dim, grad.shape[1], DEEP=ctx.has_deep, **options)
        return (of_deep if ctx.has_deep else None), result


def _contiguous(deep: Tensor | None, others: Tensor) -> tuple[list[Tensor], int]:
    """Return `[deep, others]` for a Triton program, contiguous, and the number of a row's vectors.

    Without `deep`, the list has `others` twice, since the program takes two tensors.
    """
    others = others.contiguous()
    if deep is None:
        return [others, others], others.shape[1]
    return [deep.contiguous(), others], others.shape[1] + 1


def _width(count: int) -> int:
    """Return a block size for matrix units: a power of two, at least 16 and at least `count`."""
    return max(16, int(triton.next_power_of_2(count)))


def _options(n: int, dim: int, dtype: torch.dtype) -> dict[str, Any]:
    precision = _precision()
    # Without matrix units each thread multiplies one by one, in unrolled code: 64 vectors of
    # 128 at once took the compiler minutes.
    is_slow = dtype == torch.float32 and precision == "ieee"
    chunk = 16 if is_slow else min(_width(dim), 64)
    # A row is little work for matrix units: with one warp a row, warps do not wait for each other.
    num_warps = 1 if not is_slow and _width(n) <= 32 else 4
    return {"VECTORS": _width(n), "CHUNK": chunk, "PRECISION": precision, "num_warps": num_warps}


def _precision() -> str:
    matmul = torch.backends.cuda.matmul
    # torch before 2.9 has a boolean option; later versions reject a mixture of both.
    precision = getattr(matmul, "fp32_precision", None)
    is_tf32 = matmul.allow_tf32 if precision is None else precision == "tf32"
    return "tf32" if is_tf32 else "ieee"


@triton.jit
def _forward(
    deep,
    others,
    out,
    n,
    dim,
    width,
    DEEP: tl.constexpr,
    VECTORS: tl.constexpr,
    CHUNK: tl.constexpr,
    PRECISION: tl.constexpr,
) -> Any:
    row = tl.program_id(0).to(tl.int64)
    out += row * width
    first, second = tl.arange(0, VECTORS), tl.arange(0, VECTORS)
    products = tl.zeros((VECTORS, VECTORS), dtype=tl.float32)
    for start in range(0, dim, CHUNK):
        values = start + tl.arange(0, CHUNK)
        own = _vectors(deep, others, row, n, dim, first, values, DEEP, out.dtype.element_ty)
        if DEEP:
            one = tl.load(deep + row * dim + values, mask=values < dim, other=0)
            tl.store(out + values, one, mask=values < dim)
        products = tl.dot(own, tl.trans(own), products, input_precision=PRECISION)
    if DEEP:
        padding = dim + n * (n - 1) // 2 + tl.arange(0, 8)
        tl.store(out + padding, tl.zeros((8,), dtype=tl.float32), mask=padding < width)
        out += dim
    is_pair = (first < n)[:, None] & (second[None, :] < first[:, None])
    pair = (first * (first - 1) // 2)[:, None] + second[None, :]
    tl.store(out + pair, products, mask=is_pair)


@triton.jit
def _backward(
    deep,
    others,
    grad,
    deep_grad,
    others_grad,
    n,
    dim,
    width,
    DEEP: tl.constexpr,
    VECTORS: tl.constexpr,
    CHUNK: tl.constexpr,
    PRECISION: tl.constexpr,
) -> Any:
    row = tl.program_id(0).to(tl.int64)
    grad += row * width
    first, second = tl.arange(0, VECTORS), tl.arange(0, VECTORS)
    # The symmetric matrix of the pairs' gradients, zeros on its diagonal, times the vectors.
    larger = tl.maximum(first[:, None], second[None, :])
    smaller = tl.minimum(first[:, None], second[None, :])
    is_pair = (larger < n) & (smaller < larger)
    pair = larger * (larger - 1) // 2 + smaller
    symmetric = tl.load(grad + DEEP * dim + pair, mask=is_pair, other=0)
    for start in range(0, dim, CHUNK):
        values = start + tl.arange(0, CHUNK)
        own = _vectors(deep, others, row, n, dim, first, values, DEEP, grad.dtype.element_ty)
        found = tl.dot(symmetric, own, input_precision=PRECISION)
        at, is_there = _places(row, n, dim, first, values, DEEP)
        tl.store(others_grad + at, found, mask=is_there)
        if DEEP:
            of_deep = tl.sum(tl.where((first == 0)[:, None], found, 0), axis=0)
            of_deep += tl.load(grad + values, mask=values < dim, other=0)
            tl.store(deep_grad + row * dim + values, of_deep, mask=values < dim)


@triton.jit
def _vectors(deep, others, row, n, dim, numbers, values, DEEP: tl.constexpr, TYPE: tl.constexpr):
    """Return a row's vectors, `[numbers, values]`, with that of `deep` first if `DEEP` is True.

    The arguments are those of `_places`, and the dtype is `TYPE`.
    """
    at, is_there = _places(row, n, dim, numbers, values, DEEP)
    own = tl.load(others + at, mask=is_there, other=0).to(TYPE)
    if DEEP:
        one = tl.load(deep + row * dim + values, mask=values < dim, other=0).to(TYPE)
        own = tl.where((numbers == 0)[:, None], one[None, :], own)
    return own


@triton.jit
def _places(row, n, dim, numbers, values, DEEP: tl.constexpr):
    """Return where a row's vectors are in the tensor `others`, as flat indices, and a mask.

    Both are `[numbers, values]`, for the numbers of the vectors and of their values. The mask is
    True for values that are in `others`. With `DEEP`, vector 0 is in another tensor, `deep`.
    """
    is_there = ((numbers >= DEEP) & (numbers < n))[:, None] & (values < dim)[None, :]
    return (row * (n - DEEP) + numbers[:, None] - DEEP) * dim + values[None, :], is_there
