"""The multi-layer perceptron."""

from collections.abc import Sequence

from torch import Tensor, nn

from distrain.models.blocks import linear_over, mlp


class MlpDense(nn.Module):
    """All embeddings and continuous values side by side, hidden layers with ReLU, one logit.

    With `hidden=(128, 128, 128)` it is the network of NVTabular's "Training with TensorFlow"
    notebook, without the final sigmoid: the loss has it.

    Args:
        embedded_width: The sum of the widths of all columns' embeddings.
        num_continuous: How many continuous columns there are; 0 is fine.
        hidden: The hidden layers' widths; none makes it a logistic regression.

    Shape:
        embedded: for each group `[rows, columns, dim]`; continuous: `[rows, num_continuous]`;
        output: `[rows]`, logits.
    """

    def __init__(self, embedded_width: int, num_continuous: int, hidden: Sequence[int]):
        super().__init__()
        widths = (embedded_width + num_continuous, *hidden)
        self.hidden = mlp(*widths)
        self.logit = nn.Linear(widths[-1], 1)

    def forward(self, embedded: tuple[Tensor, ...], continuous: Tensor) -> Tensor:
        """The logits, `[rows]`."""
        inputs = [*(values.flatten(1) for values in embedded), continuous]
        first, *others = (*self.hidden, self.logit)
        assert isinstance(first, nn.Linear)
        logits = linear_over(first, inputs)
        for layer in others:
            logits = layer(logits)
        return logits.squeeze(1)
