"""The dot products of all pairs of a row's vectors, in Triton, for NVIDIA's GPUs.

The twin in torch, `interaction.PairProducts`, multiplies all n*n pairs, writes them, and picks half
of them; here a program holds a row's vectors and writes the pairs only. Import this module only
where `runs_triton` allows it: it needs the package `triton`.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable


def pair_products(vectors: Tensor) -> Tensor:
    """`interaction.PairProducts` of `[rows, n, dim]`, n at most 64, of the type of the vectors.

    Where autocast is on, the result has its type.
    """
    products: Tensor = _PairProducts.apply(vectors)  # type: ignore[no-untyped-call]
    return products


class _PairProducts(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, vectors: Tensor) -> Tensor:
        vectors = vectors.contiguous()
        ctx.save_for_backward(vectors)
        rows, n, dim = vectors.shape
        dtype = vectors.dtype
        if torch.is_autocast_enabled(vectors.device.type):
            dtype = torch.get_autocast_dtype(vectors.device.type)
        out = torch.empty(rows, n * (n - 1) // 2, dtype=dtype, device=vectors.device)
        if rows:
            _forward[(rows,)](vectors, out, n, dim, **_constants(n, dim, dtype))
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (vectors,) = ctx.saved_tensors
        rows, n, dim = vectors.shape
        result = torch.empty_like(vectors)
        if rows:
            constants = _constants(n, dim, vectors.dtype)
            _backward[(rows,)](vectors, grad.contiguous(), result, n, dim, **constants)
        return result


def _width(count: int) -> int:
    """A width that a matrix unit takes: a power of two, at least 16."""
    return max(16, int(triton.next_power_of_2(count)))


def _constants(n: int, dim: int, dtype: torch.dtype) -> dict[str, Any]:
    precision = _precision()
    # Without matrix units each thread multiplies one by one, in code without loops: 64 vectors of
    # 128 at once took the compiler minutes.
    is_slow = dtype == torch.float32 and precision == "ieee"
    chunk = 16 if is_slow else min(_width(dim), 64)
    return {"VECTORS": _width(n), "CHUNK": chunk, "PRECISION": precision}


def _precision() -> str:
    matmul = torch.backends.cuda.matmul
    # torch before 2.9 has a plain switch; later ones refuse a mixture of both.
    precision = getattr(matmul, "fp32_precision", None)
    is_tf32 = matmul.allow_tf32 if precision is None else precision == "tf32"
    return "tf32" if is_tf32 else "ieee"


@triton.jit
def _forward(
    vectors,
    out,
    n,
    dim,
    VECTORS: tl.constexpr,
    CHUNK: tl.constexpr,
    PRECISION: tl.constexpr,
) -> Any:
    row = tl.program_id(0).to(tl.int64)
    first, second = tl.arange(0, VECTORS), tl.arange(0, VECTORS)
    products = tl.zeros((VECTORS, VECTORS), dtype=tl.float32)
    for start in range(0, dim, CHUNK):
        values = start + tl.arange(0, CHUNK)
        mask = (first < n)[:, None] & (values < dim)[None, :]
        at = vectors + row * n * dim + first[:, None] * dim + values[None, :]
        own = tl.load(at, mask=mask, other=0).to(out.dtype.element_ty)
        products = tl.dot(own, tl.trans(own), products, input_precision=PRECISION)
    is_pair = (first < n)[:, None] & (second[None, :] < first[:, None])
    pair = (first * (first - 1) // 2)[:, None] + second[None, :]
    tl.store(out + row * (n * (n - 1) // 2) + pair, products, mask=is_pair)


@triton.jit
def _backward(
    vectors,
    grad,
    result,
    n,
    dim,
    VECTORS: tl.constexpr,
    CHUNK: tl.constexpr,
    PRECISION: tl.constexpr,
) -> Any:
    row = tl.program_id(0).to(tl.int64)
    first, second = tl.arange(0, VECTORS), tl.arange(0, VECTORS)
    # The symmetric matrix of the pairs' gradients, zeros on its diagonal, times the vectors.
    larger = tl.maximum(first[:, None], second[None, :])
    smaller = tl.minimum(first[:, None], second[None, :])
    is_pair = (larger < n) & (smaller < larger)
    pair = larger * (larger - 1) // 2 + smaller
    symmetric = tl.load(grad + row * (n * (n - 1) // 2) + pair, mask=is_pair, other=0)
    symmetric = symmetric.to(vectors.dtype.element_ty)
    for start in range(0, dim, CHUNK):
        values = start + tl.arange(0, CHUNK)
        mask = (first < n)[:, None] & (values < dim)[None, :]
        at = row * n * dim + first[:, None] * dim + values[None, :]
        own = tl.load(vectors + at, mask=mask, other=0)
        tl.store(result + at, tl.dot(symmetric, own, input_precision=PRECISION), mask=mask)
