"""The dense layers in a rank's training step: forward and backward, gradient sync, optimizer."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from inspect import signature, unwrap
from typing import Any

import torch
from torch import Tensor, distributed as dist, nn
from torch.optim import Optimizer

from distrain.errors import ModelError
from distrain.jobs.optimizers import optimizer_facts
from distrain.jobs.spec.training import OptimizerSpec, TrainSpec
from distrain.models.embeddings.averaging import GAP, Averaging
from distrain.train.checkpoint.training_state import create_state
from distrain.train.step.clipping import total_sq_norm
from distrain.train.step.gradient_buckets import GradientBuckets
from distrain.train.step.gradient_sync import BufferSync, FlatParameters
from distrain.train.step.precision import arithmetic, check_precision, deterministic
from distrain.train.timing.phases import PEERS, waiting


class DenseTraining:
    """Runs, synchronises and updates the dense module of one rank.

    A step, in the order of its calls; with micro-batches, the indented line is repeated for each::

        zero_grad()
            begin_slice(last), forward(embedded, continuous), ..., backward(loss)
        start_sync()
        ...                     # other work, which the exchange overlaps
        finish_sync()           # gradients are now the sums over the ranks
        grad_sq_norm()          # if the norm is needed
        optimizer.begin_step(number)    # with `train.ema`
        step(lr, scale)

    Gradients are *added up* over the ranks, so a rank's loss is its share of the global loss: the
    sum of its rows' losses divided by the rows of all ranks. No factor of the number of ranks
    appears anywhere.

    The module's parameters and gradients become views of two vectors (`FlatParameters`). Optimizer
    and precision are those of `train`; see `docs/spec.md`. Creating an instance is a collective
    operation: all ranks begin with rank 0's parameters.

    Args:
        module: `module(embedded, continuous, *lists) -> logits`, on its device, where it must stay.
        num_ranks: The number of ranks that train together; above 1, a process group must exist.
        captured: Whether a CUDA graph will contain the optimizer's step, if that is possible.
    """

    def __init__(
        self,
        module: nn.Module,
        train: TrainSpec,
        num_ranks: int = 1,
        group: dist.ProcessGroup | None = None,
        *,
        captured: bool = False,
    ):
        _check_trained(module)
        self._precision = train.precision
        self.device = next(module.parameters()).device
        self._forward = DenseForward(module, train.precision)
        self._flat = FlatParameters(self._forward)
        self._buffers = BufferSync(self._forward, num_ranks, group)
        self._buckets: GradientBuckets | None = None
        if num_ranks > 1:
            dist.broadcast(self._flat.vector.data, group=group, group_src=0)
            self._buckets = GradientBuckets(
                self._flat.grads,
                self._flat.parameters,
                self._flat.starts,
                partial(dist.all_reduce, group=group, async_op=True),
            )
        averaging = None if train.ema is None else Averaging(train.ema)
        vector = self._flat.vector
        self.optimizer = DenseOptimizer(vector, train.optimizer, captured, averaging)
        self.zero_grad()

    def begin_slice(self, last: bool) -> None:
        """Prepare forward and backward of one slice of the step's rows; `last`: the last slice."""
        if last and self._buckets is not None:
            self._buckets.arm()

    def forward(self, embedded: tuple[Tensor, ...], continuous: Tensor, *lists: Any) -> Tensor:
        """Return the module's output, fp32 (float64 for a float64 module); 0 rows are allowed."""
        with self._dense_part():
            logits: Tensor = self._forward(embedded, continuous, *lists)
        return logits

    def backward(self, loss: Tensor) -> None:
        """Compute a slice's gradients: add those of the parameters, and set those of its inputs.

        In the last slice, the exchange of the parameters' gradients begins layer by layer.
        """
        with self._dense_part():
            torch.autograd.backward(loss)

    @contextmanager
    def _dense_part(self) -> Iterator[None]:
        with deterministic(self.device), arithmetic(self._precision, self.device):
            yield

    def start_sync(self) -> None:
        """Begin to add up the ranks' gradients; every rank calls it in every step."""
        if self._buckets is not None:
            self._buckets.start()
        self._buffers.start()

    def finish_sync(self) -> None:
        """Wait for the sums of the gradients and the means of the buffers.

        On a GPU, the stream waits, not the host.
        """
        if self._buckets is not None:
            with waiting(PEERS):
                self._buckets.finish()
        self._buffers.finish()

    def grad_sq_norm(self) -> Tensor:
        """Return the sum of the squares of all gradients, a scalar on the device."""
        return total_sq_norm([self._flat.grads])

    def step(self, lr: float | Tensor, scale: Tensor | None = None) -> None:
        """Update the parameters; see `DenseOptimizer.step`."""
        self.optimizer.step(lr, scale)

    def zero_grad(self) -> None:
        self.optimizer.zero_grad()


def _check_trained(module: nn.Module) -> None:
    """Raise `ModelError` for a module that cannot be trained, before any collective operation.

    It needs parameters with `requires_grad`, all of one dtype.
    """
    parameters = dict(module.named_parameters())
    kinds = {name: str(p.dtype) for name, p in parameters.items() if p.requires_grad}
    if not kinds:
        raise ModelError(
            "the dense layers have no parameter to train",
            where={"parameters": len(parameters), "with requires_grad": 0},
            hint="Give it a layer with parameters, or leave requires_grad of one at True, such as "
            "of the last layer; the embeddings are trained with it.",
        )
    if len(set(kinds.values())) > 1:
        few = Counter(kinds.values()).most_common()[-1][0]
        odd = [name for name, kind in kinds.items() if kind == few]
        raise ModelError(
            "the parameters of the dense layers have different types",
            where={"types": ", ".join(sorted(set(kinds.values()))), few: ", ".join(odd[:3])},
            hint="Convert them to one type in the function that makes the model, for example with "
            "module.float(). train.precision sets the type of the computation.",
        )


class DenseForward(nn.Module):
    """Runs `module(embedded, continuous, *lists)` in a precision, and returns logits for a loss.

    With `bf16` the module runs under autocast: parameters and inputs are fp32, matrix products
    bf16, and the logits fp32. Raises `SpecError` if the device lacks the precision.
    """

    def __init__(self, module: nn.Module, precision: str = "fp32"):
        super().__init__()
        self.module = module
        first = next(module.parameters())
        check_precision(precision, first.device)
        self._device_type = first.device.type
        self._autocast = precision == "bf16"

    def forward(self, embedded: tuple[Tensor, ...], continuous: Tensor, *lists: Any) -> Tensor:
        with torch.autocast(self._device_type, torch.bfloat16, enabled=self._autocast):
            logits: Tensor = self.module(embedded, continuous, *lists)
        return logits.float() if logits.dtype == torch.bfloat16 else logits


class DenseOptimizer:
    """Updates the vector of all dense parameters with one of torch's optimizers.

    torch's fused kernels do an update in one pass, with one kernel for the whole vector. If torch
    has no fused kernel for the optimizer and device, its other implementation gives the same
    result. With fused kernels on a GPU, the learning rate is a tensor on the device, so that a
    captured graph reads its current value.

    Args:
        vector: `[size]`, whose `.grad` is never replaced by another tensor.
        captured: Whether a graph will contain the step, if that is possible.
        averaging: The average of the vector to keep beside torch's state; `None` for none.
    """

    def __init__(
        self,
        vector: nn.Parameter,
        spec: OptimizerSpec,
        captured: bool = False,
        averaging: Averaging | None = None,
    ):
        self.vector = vector
        fused = _has_fused(spec, vector)
        self._lr: Tensor | None = None
        if fused and vector.device.type == "cuda":
            self._lr = torch.full((), spec.lr, dtype=torch.float32, device=vector.device)
        lr = spec.lr if self._lr is None else self._lr
        self.torch_optimizer = _make(vector, spec, lr, fused, captured)
        self._averaging = averaging
        # `Averaging.growth` of the step; a captured graph reads it from the device
        self._growth: float | Tensor = 1.0 if self._lr is None else vector.new_ones(())
        if averaging is not None:
            create_state(self.torch_optimizer)  # torch would create none once `GAP` is in its state
            self.torch_optimizer.state[vector][GAP] = torch.zeros_like(vector)

    @property
    def capturable(self) -> bool:
        """Whether a CUDA graph may contain the step, because the learning rate is on the device."""
        return self._lr is not None

    @torch.no_grad()
    def begin_step(self, number: int) -> None:
        """Prepare the average for step `number`, counted from 1; nothing if none is kept.

        Call it before `step`, and not in a captured graph, since the preparation differs by step.
        """
        if self._averaging is None:
            return
        self._averaging.begin(self._gaps, number)
        growth = self._averaging.growth(number)
        if isinstance(self._growth, Tensor):
            self._growth.fill_(growth)
        else:
            self._growth = growth

    @torch.no_grad()
    def step(self, lr: float | Tensor, scale: Tensor | None = None) -> None:
        """Update the parameters.

        Args:
            lr: The learning rate; for a captured graph a tensor on its device.
            scale: A scalar tensor on the parameters' device: a factor on the gradients, which are
                multiplied by it in place. `None` means 1.
        """
        if scale is not None:
            assert self.vector.grad is not None
            self.vector.grad.mul_(scale)
        if self._lr is None:
            for group in self.torch_optimizer.param_groups:
                group["lr"] = float(lr)
        elif isinstance(lr, Tensor):
            self._lr.copy_(lr)
        else:
            self._lr.fill_(lr)
        if self._averaging is None:
            self._update()
            return
        before = self.vector.clone()
        self._update()
        fallen = before - self.vector
        if isinstance(self._growth, Tensor):
            self._gaps.add_(fallen * self._growth)
        else:
            self._gaps.add_(fallen, alpha=self._growth)

    def _update(self) -> None:
        if self._lr is not None and isinstance(self.torch_optimizer, torch.optim.SGD):
            # torch's fused kernel uses one block of a GPU for 65,536 values.
            assert self.vector.grad is not None
            self.vector.addcmul_(self.vector.grad, self._lr, value=-1.0)
        else:
            self.torch_optimizer.step()

    @torch.no_grad()
    def take_averages(self, steps: int) -> None:
        """Replace the vector by its average after `steps` steps, in place."""
        assert self._averaging is not None
        self.vector.copy_(self._averaging.averages(self.vector.data, self._gaps, steps))

    @contextmanager
    @torch.no_grad()
    def averaged(self, steps: int) -> Iterator[None]:
        """Return a context in which the vector has its average after `steps` steps.

        If no average is kept, the vector stays the same.
        """
        if self._averaging is None:
            yield
            return
        own = self.vector.clone()
        self.take_averages(steps)
        try:
            yield
        finally:
            self.vector.copy_(own)

    @property
    def _gaps(self) -> Tensor:
        gaps: Tensor = self.torch_optimizer.state[self.vector][GAP]
        return gaps

    def zero_grad(self) -> None:
        self.torch_optimizer.zero_grad(set_to_none=False)


def _make(
    vector: nn.Parameter,
    spec: OptimizerSpec,
    lr: float | Tensor,
    fused: bool,
    captured: bool = False,
) -> Optimizer:
    """Return torch's optimizer of the vector; options that the spec leaves null get defaults.

    `fused` is ignored by optimizers without that option. If the step is `captured` and `lr` is a
    tensor, the optimizer is made `capturable`.
    """
    facts = optimizer_facts(spec.kind)
    given = {name: getattr(spec, name) for name in facts.dense_options}
    options = {**facts.dense_options, **{n: v for n, v in given.items() if v is not None}}
    make = _without_compiler(getattr(torch.optim, facts.dense_class))
    choices = signature(make).parameters
    if "fused" in choices:  # some of torch's optimizers lack the option
        options["fused"] = fused
    # Adam's step cannot be captured without `capturable`. The fused kernel is the same.
    if "capturable" in choices and captured and isinstance(lr, Tensor):
        options["capturable"] = True
    optimizer = make([vector], lr=lr, **options)
    # torch would warn that steps before the capture are not captured.
    optimizer._warned_capturable_if_run_uncaptured = True
    return optimizer


@cache
def _without_compiler(kind: type[Optimizer]) -> Callable[..., Optimizer]:
    """Return a class of `torch.optim` without its wrappers, which load torch's compiler."""
    plain = {name: unwrap(getattr(kind, name)) for name in ("add_param_group", "zero_grad")}
    return type(kind.__name__, (kind,), {**plain, "step": torch.no_grad()(unwrap(kind.step))})


def _has_fused(spec: OptimizerSpec, like: nn.Parameter) -> bool:
    """Try a step, and return True if torch has the optimizer's fused kernel for such parameters."""
    trial = nn.Parameter(torch.zeros(1, dtype=like.dtype, device=like.device))
    trial.grad = torch.zeros_like(trial)
    try:
        optimizer = _make(trial, spec, spec.lr, fused=True)
        optimizer.step()
    except (RuntimeError, NotImplementedError):
        return False
    return "fused" in optimizer.defaults
