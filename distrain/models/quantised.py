"""Embedding tables in fewer bits for scoring, each row quantised separately."""

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from distrain.errors import ModelError
from distrain.models.click_model import ClickModel, Ensemble

TableForm = Literal["fp32", "fp16", "int8", "int4"]

_ROWS_AT_ONCE = 65536
_TINIEST = 2.0**-24
"""The smallest positive number of float16."""


class QuantisedTable(nn.Module):
    """A table whose rows are stored as float16, or as integers with a scale.

    `int8`: a row is `codes * scale`, with codes -127 to 127. `int4`: a row is `least + codes *
    scale`, with `least` the row's minimum and codes 0 to 15, two in a byte, the first in its lower
    half. `steps` has each row's scale, for `int4` also `least`, as float16. In these two forms, the
    error of a number is at most half a scale, plus for `int4` the rounding of `least` to float16.
    Rows with a scale below about 1e-5 may have larger errors, since float16 rounds it coarsely.

    Shape:
        - ids: `[...]`, int64.
        - result: `[..., dim]`, float32.

    Raises:
        ModelError: A number of the table is not finite, or too large for float16.

    >>> table = QuantisedTable(torch.tensor([[0.5, -1.27, 0.0]]), "int8")
    >>> table.codes.tolist(), [round(one, 2) for one in table(torch.tensor([0]))[0].tolist()]
    ([[50, -127, 0]], [0.5, -1.27, 0.0])
    """

    codes: Tensor
    steps: Tensor

    def __init__(self, weight: Tensor, form: TableForm):
        super().__init__()
        self.form, self.dim = form, weight.shape[1]
        make = {"fp16": _halves, "int8": _bytes, "int4": _nibbles}[form]
        parts = [make(some.detach().float()) for some in torch.split(weight, _ROWS_AT_ONCE)]
        codes, steps = (torch.cat(some) for some in zip(*parts, strict=True))
        if not (steps.isfinite().all() and (form != "fp16" or codes.isfinite().all())):
            raise ModelError(
                f"a table has values that {form} cannot represent",
                where={"greatest": f"{weight.abs().max().item():g}"},
                hint="Export it with --tables fp32.",
            )
        self.register_buffer("codes", codes)
        self.register_buffer("steps", steps)

    def forward(self, ids: Tensor) -> Tensor:
        codes = functional.embedding(ids, self.codes).float()
        if self.form == "fp16":
            return codes
        steps = functional.embedding(ids, self.steps).float()
        if self.form == "int8":
            return codes * steps
        upper = (codes / 16).floor()
        codes = torch.stack([codes - upper * 16, upper], dim=-1).flatten(-2)[..., : self.dim]
        return steps[..., 1:] + codes * steps[..., :1]

    @property
    def size_bytes(self) -> int:
        return sum(part.numel() * part.element_size() for part in (self.codes, self.steps))


def round_tables(model: ClickModel, form: TableForm) -> None:
    """Round a model's tables like an export in this form, so that its metrics can be measured.

    The model is changed. All rows of its tables must be on this rank, as from `load_model`.
    """
    if form == "fp32":
        return
    if isinstance(model, Ensemble):
        for member in model.members:
            round_tables(member, form)
        return
    model.embeddings.apply_factor()
    with torch.no_grad():
        for weight in model.embeddings.weights:
            for some in torch.split(weight, _ROWS_AT_ONCE):
                some.copy_(QuantisedTable(some, form)(torch.arange(len(some))))


def _halves(rows: Tensor) -> tuple[Tensor, Tensor]:
    return rows.half(), rows.new_zeros(len(rows), 0, dtype=torch.float16)


def _bytes(rows: Tensor) -> tuple[Tensor, Tensor]:
    greatest = rows.abs().amax(dim=1, keepdim=True)
    steps = (greatest / 127).clamp(min=_TINIEST).half()
    return (rows / steps.float()).round().clamp(-127, 127).to(torch.int8), steps


def _nibbles(rows: Tensor) -> tuple[Tensor, Tensor]:
    least = rows.amin(dim=1, keepdim=True).half()
    spread = rows.amax(dim=1, keepdim=True) - least.float()
    steps = (spread / 15).clamp(min=_TINIEST).half()
    codes = ((rows - least.float()) / steps.float()).round().clamp(0, 15)
    codes = functional.pad(codes, (0, codes.shape[1] % 2))
    packed = (codes[:, ::2] + 16 * codes[:, 1::2]).to(torch.uint8)
    return packed, torch.cat([steps, least], dim=1)
