"""Ranks that are not there."""

import torch

from distrain.models.embeddings import Peers


class NcclPeers(Peers):
    """Ranks that meet through NCCL, without being there."""

    device = torch.device("cuda")
