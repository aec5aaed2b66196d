"""The mean of several models' or members' scores."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from distrain.models.heads.targets import Target


def one_against_rest(scores: Tensor) -> Tensor:
    """Return `scores` `[rows]`, or of `[rows, classes]` the logit of class 1 against all others.

    With z the logits of a row's classes, it is z_1 - log(sum over the other classes of exp z_j).
    """
    if scores.dim() == 1:
        return scores
    others = torch.cat([scores[:, :1], scores[:, 2:]], dim=1)
    return scores[:, 1] - others.logsumexp(1)


def mean_scores(
    targets: Sequence[Target], of_members: Sequence[Sequence[Tensor]]
) -> tuple[Tensor, ...]:
    """Combine several models' scores to one score per target, in the form of `Task.scores`.

    A binary target gets the logit of the mean probability, a multiclass one the logarithms of the
    classes' mean probabilities, a regression the mean prediction; float32.
    """
    by_target = zip(*of_members, strict=True)
    stacked = (torch.stack([one.float() for one in scores]) for scores in by_target)
    return tuple(_mean_of(target, some) for target, some in zip(targets, stacked, strict=True))


def _mean_of(target: Target, scores: Tensor) -> Tensor:
    if target.kind == "regression":
        return scores.mean(0)
    # Compute with logarithms, which stay accurate for probabilities near 1.
    if target.kind == "multiclass":
        return functional.log_softmax(scores, -1).logsumexp(0) - math.log(len(scores))
    ones, zeros = (functional.logsigmoid(some).logsumexp(0) for some in (scores, -scores))
    return ones - zeros
