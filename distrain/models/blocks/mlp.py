"""Multi-layer perceptrons."""

from collections.abc import Callable, Sequence

from torch import Tensor, nn

from distrain.errors import ModelError
from distrain.models.blocks.block import Block
from distrain.models.blocks.functional import Linear, activation_layer, linear_of
from distrain.models.blocks.layers import Dice, normalisation_layer
from distrain.models.shapes import Flat, Shape, Value, flat, some_width

USUAL_ORDER = ("linear", "norm", "activation", "dropout")
# fastai's LinBnDrop with lin_first=True, as in its TabularModel.
FASTAI_ORDER = ("linear", "activation", "norm", "dropout")


class MLPBlock(Block):
    """Linear layers, each with an activation, and with optional normalisation and dropout.

    The first linear layer reads the parts of the input without concatenating them, unless `order`
    puts another step before it.

    Args:
        widths: Widths of the layers; without any, the block is the identity.
        activation: One of `ACTIVATIONS`, or "dice", which includes a batch norm.
        dropout: The share of a layer's outputs that training sets to 0; one number, or one for each
            layer.
        normalisation: "batch_norm", "layer_norm" or "none".
        no_activation_last_layer: Whether the last layer is only linear, without activation,
            normalisation and dropout.
        bias: Whether the linear layers have a bias. It has no effect before a batch normalisation;
            fastai omits it.
        order: Order of "linear", "norm", "activation" and "dropout" in a layer, for example
            `FASTAI_ORDER`.

    Shape:
        any flat shape to `[rows, widths[-1]]`.

    Raises:
        ModelError: A width is below 1, or an argument is invalid.

    >>> import torch
    >>> mlp = MLPBlock([8, 3], activation="tanh", dropout=0.1)
    >>> str(mlp.attach(Flat(5)))
    '[rows, 3]'
    >>> mlp(torch.zeros(7, 5)).shape
    torch.Size([7, 3])
    """

    def __init__(
        self,
        widths: Sequence[int],
        activation: str = "relu",
        *,
        dropout: float | Sequence[float] = 0.0,
        normalisation: str = "none",
        no_activation_last_layer: bool = False,
        bias: bool = True,
        order: Sequence[str] = USUAL_ORDER,
    ):
        super().__init__()
        self.widths = tuple(widths)
        self.activation = activation
        shares = dropout if isinstance(dropout, Sequence) else [dropout] * len(self.widths)
        self.dropout = tuple(shares)
        self.normalisation = normalisation
        self.no_activation_last_layer = no_activation_last_layer
        self.bias = bias
        self.order = tuple(order)
        self.layers = nn.Sequential()
        self._check()

    @property
    def label(self) -> str:
        return f"MLPBlock({list(self.widths)})"

    def build(self, input_shape: Shape) -> Shape:
        width = some_width(input_shape, self.label)
        if not self.widths:
            return input_shape
        for number, next_width in enumerate(self.widths):
            is_last = number == len(self.widths) - 1
            if is_last and self.no_activation_last_layer:
                self.layers.append(Linear(width, next_width, bias=self.bias))
            else:
                self.layers.extend(self._layer(width, next_width, self.dropout[number]))
            width = next_width
        self.only_multiplies = isinstance(self.layers[0], nn.Linear)
        return Flat(width)

    def forward(self, value: Value) -> Value:
        if not self.widths:
            return value
        first, *others = self.layers
        result: Tensor
        result = linear_of(first, value) if isinstance(first, nn.Linear) else first(flat(value))
        for layer in others:
            result = layer(result)
        return result

    def _layer(self, width: int, next_width: int, dropout: float) -> list[nn.Module]:
        # The activation is in place only after the linear layer. The gradients of that layer, and
        # of a norm between the two, do not need their own outputs. Before the linear layer, the
        # activation could overwrite the block's input, which other blocks read.
        inplace = self._is_after_linear("activation")
        active_width = next_width if inplace else width
        norm_width = next_width if self._is_after_linear("norm") else width
        modules: dict[str, Callable[[], nn.Module]] = {
            "linear": lambda: Linear(width, next_width, bias=self.bias),
            "norm": lambda: normalisation_layer(self.normalisation, norm_width),
            "activation": lambda: self._activation(active_width, inplace),
            "dropout": lambda: nn.Dropout(dropout) if dropout else nn.Identity(),
        }
        made = [modules[word]() for word in self.order]
        return [module for module in made if not isinstance(module, nn.Identity)]

    def _activation(self, width: int, inplace: bool = False) -> nn.Module:
        if self.activation == "dice":
            return Dice(width)
        return activation_layer(self.activation, inplace=inplace)

    def _is_after_linear(self, word: str) -> bool:
        return self.order.index(word) > self.order.index("linear")

    def _check(self) -> None:
        if any(width < 1 for width in self.widths):
            raise ModelError(f"{self.label} has a layer without outputs")
        if any(not 0 <= dropout < 1 for dropout in self.dropout):
            raise ModelError(
                f"{self.label} cannot drop {', '.join(map(str, self.dropout))} of its outputs",
                hint="A dropout is a share, at least 0 and below 1.",
            )
        if len(self.dropout) != len(self.widths):
            raise ModelError(
                f"{self.label} has {len(self.widths)} layers, and {len(self.dropout)} dropouts"
            )
        if sorted(self.order) != sorted(USUAL_ORDER):
            raise ModelError(
                f"{self.label} cannot order a layer as {', '.join(self.order)}",
                hint=f"The words are {', '.join(USUAL_ORDER)}, each once.",
            )
        self._activation(1)
        normalisation_layer(self.normalisation, 1)
