"""fbgemm's table-batched embedding and TorchRec, run in a separate Python."""

from typing import Any

from benchmarks.step_bench.contender import Contender, Setup
from benchmarks.step_bench.data import Rows
from benchmarks.step_bench.dense import LR, loss_of, mlp_dense
from benchmarks.step_bench.laps import Laps

OPTIMIZERS = {
    "sgd": "EXACT_SGD",
    "adagrad": "EXACT_ADAGRAD",
    "rowwise_adagrad": "EXACT_ROWWISE_ADAGRAD",
    "adam": "ADAM",
}


class TableBatched:
    """The embeddings alone: forward, and a backward pass that also updates the rows.

    Bounds checks are off, because distrain's loader has also checked its ids in advance.
    """

    def __init__(self, setup: Setup, rows: Rows, rank: int):
        import torch
        from fbgemm_gpu.split_embedding_configs import EmbOptimType
        from fbgemm_gpu.split_table_batched_embeddings_ops_common import (
            BoundsCheckMode,
            EmbeddingLocation,
        )
        from fbgemm_gpu.split_table_batched_embeddings_ops_training import (
            ComputeDevice,
            SplitTableBatchedEmbeddingBagsCodegen,
        )

        self.setup, self.rows, self.rank = setup, rows, rank
        place = EmbeddingLocation.DEVICE if setup.cuda else EmbeddingLocation.HOST
        computed = ComputeDevice.CUDA if setup.cuda else ComputeDevice.CPU
        self.tables = SplitTableBatchedEmbeddingBagsCodegen(
            [(count, setup.dim, place, computed) for count in rows.cardinalities],
            optimizer=getattr(EmbOptimType, OPTIMIZERS[setup.kind]),
            learning_rate=LR,
            bounds_check_mode=BoundsCheckMode.NONE,
            device=torch.device(setup.device),
        )
        for weight in self.tables.split_embedding_weights():
            weight.uniform_(-0.01, 0.01)

    def prepare(self, batch_rows: int) -> int:
        """See `Contender`."""
        import torch

        parts = self.rows.batches(batch_rows, self.rank, self.setup.ranks)
        device, columns = self.setup.device, len(self.rows.cardinalities)
        self.ids = [
            torch.from_numpy(self.rows.ids[:, part].astype("int64").ravel()).to(device)
            for part in parts
        ]
        self.offsets = torch.arange(columns * batch_rows + 1, device=device)
        width = columns * self.setup.dim
        self.grad = torch.randn(batch_rows, width, device=device) / batch_rows
        return len(parts)

    def step(self, number: int, laps: Laps) -> None:
        """See `Contender`."""
        with laps.phase("forward"):
            output = self.tables(self.ids[number], self.offsets)
        with laps.phase("backward and update"):
            output.backward(self.grad)


class TorchRec:
    """The whole MLP step, with the optimizer fused into the tables.

    Tables are assigned to the ranks in turn, or each table is split by rows over all ranks.
    """

    def __init__(self, setup: Setup, rows: Rows, rank: int):
        import torch

        self.setup, self.rows, self.rank = setup, rows, rank
        self.names = [f"C{number}" for number in range(1, len(rows.cardinalities) + 1)]
        self.whole = sharded_model(setup, rows, self.names)
        sharded = {name for name, _ in self.whole.named_parameters() if "embedding" in name}
        dense = [p for name, p in self.whole.named_parameters() if name not in sharded]
        self.optimizer = torch.optim.SGD(dense, lr=LR, fused=True)

    def prepare(self, batch_rows: int) -> int:
        """See `Contender`."""
        import torch
        from torchrec import KeyedJaggedTensor

        def moved(values: Any) -> Any:
            return torch.from_numpy(values).to(self.setup.device)

        parts = self.rows.batches(batch_rows, self.rank, self.setup.ranks)
        lengths = torch.ones(
            len(self.names) * batch_rows, dtype=torch.int32, device=self.setup.device
        )
        self.features = [
            KeyedJaggedTensor(
                self.names, moved(self.rows.ids[:, part].astype("int64").ravel()), lengths=lengths
            )
            for part in parts
        ]
        self.continuous = [moved(self.rows.continuous[:, part].T.copy()) for part in parts]
        self.label = [moved(self.rows.label[part].copy()) for part in parts]
        return len(parts)

    def step(self, number: int, laps: Laps) -> None:
        """See `Contender`."""
        with laps.phase("forward"):
            logits = self.whole(self.features[number], self.continuous[number])
            loss = loss_of(logits, self.label[number])
        with laps.phase("backward"):
            loss.backward()
        with laps.phase("update"):
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=False)


def sharded_model(setup: Setup, rows: Rows, names: list[str]) -> Any:
    """Return a `DistributedModelParallel` whose tables are placed as `setup` says."""
    import torch
    from fbgemm_gpu.split_embedding_configs import EmbOptimType
    from torch import nn
    from torchrec import EmbeddingBagCollection, EmbeddingBagConfig
    from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
    from torchrec.distributed.model_parallel import DistributedModelParallel
    from torchrec.distributed.sharding_plan import (
        construct_module_sharding_plan,
        row_wise,
        table_wise,
    )
    from torchrec.distributed.types import ShardingPlan

    tables = [
        EmbeddingBagConfig(
            name=name, num_embeddings=count, embedding_dim=setup.dim, feature_names=[name]
        )
        for name, count in zip(names, rows.cardinalities, strict=True)
    ]

    class TablesAndDense(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = EmbeddingBagCollection(tables=tables, device=torch.device("meta"))
            self.dense = mlp_dense(setup.dim).to(setup.device)

        def forward(self, features: Any, continuous: Any) -> Any:
            return self.dense([self.embedding(features).values(), continuous])

    whole = TablesAndDense()
    optimizer = getattr(EmbOptimType, OPTIMIZERS[setup.kind])
    sharder = EmbeddingBagCollectionSharder(
        fused_params={"optimizer": optimizer, "learning_rate": LR}
    )
    by_rows = setup.placement == "row_wise"
    places = {
        name: row_wise() if by_rows else table_wise(number % setup.ranks)
        for number, name in enumerate(names)
    }
    plan = construct_module_sharding_plan(
        whole.embedding,
        places,
        sharder,
        local_size=setup.ranks,
        world_size=setup.ranks,
        device_type=setup.device,
    )
    return DistributedModelParallel(
        whole,
        device=torch.device(setup.device),
        plan=ShardingPlan({"embedding": plan}),
        sharders=[sharder],
    )


def table_batched(setup: Setup, rows: Rows, rank: int) -> Contender:
    """Open fbgemm's contender."""
    return TableBatched(setup, rows, rank)


def torchrec(setup: Setup, rows: Rows, rank: int) -> Contender:
    """Open TorchRec's contender."""
    return TorchRec(setup, rows, rank)
