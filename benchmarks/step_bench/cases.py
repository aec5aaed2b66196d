"""The comparisons and their contenders."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.step_bench.contender import Open, Setup
from benchmarks.step_bench.fbgemm_peers import table_batched, torchrec
from benchmarks.step_bench.floors import machine
from benchmarks.step_bench.ours import path, whole
from benchmarks.step_bench.torch_peers import sparse_tables

OURS, SPARSE, FBGEMM, TORCHREC, MACHINE = "distrain", "sparse", "fbgemm", "torchrec", "machine"
OPEN: dict[str, Callable[[Setup], Open]] = {
    OURS: lambda setup: path if setup.model == "path" else whole,
    SPARSE: lambda setup: sparse_tables,
    FBGEMM: lambda setup: table_batched,
    TORCHREC: lambda setup: torchrec,
    MACHINE: lambda setup: machine,
}
DDP = "DDP, 26 nn.Embedding(sparse) + SGD"
TORCHREC_NAMES = {"table_wise": "TorchRec, table-wise", "row_wise": "TorchRec, row-wise"}
GROWTH = "small and large tables"
TABLES, SMALL, STRETCHED = "tables", "1M rows", "46M rows"
BATCH = 65_536
RANKS_BATCH = 8_192
COPIES_OF_A_ROW = {"sgd": 1.0, "adagrad": 2.0, "rowwise_adagrad": 1.1, "adam": 3.0}
SHARDED = ("row_wise", "table_wise")


@dataclass(frozen=True)
class Entry:
    """A contender of a comparison.

    Attributes:
        name: Its name in the table.
        who: A key of `OPEN`.
        setup: The model and how it is trained.
        data: `TABLES`; `SMALL`: with tables of 1M rows; `STRETCHED`: the rows of `SMALL`, spread
            over tables of the comparison's scale.
        pages: "ranks": the settings of distrain's ranks, which request huge pages for their tables;
            "huge": glibc requests huge pages, which makes peers twice as fast; "small": glibc's
            default.
    """

    name: str
    who: str
    setup: Setup
    data: str = TABLES
    pages: str = "ranks"

    @property
    def bytes_per_table_row(self) -> float:
        """Memory of all its ranks for a row of the tables, optimizer included."""
        if self.who == MACHINE or self.data == SMALL:
            return 0.0
        holders = 1 if self.setup.placement in SHARDED else self.setup.ranks
        return holders * self.setup.dim * 4 * COPIES_OF_A_ROW[self.setup.kind]


@dataclass(frozen=True)
class Comparison:
    """Contenders that run at the same time and take turns.

    Attributes:
        name: Its name in the table.
        entries: The contenders.
        batches: Rows per rank and step, one batch size after the other.
        quick: Whether `--quick` includes it.
        mbits: Caps on the sending rate of each rank's network card, in Mbit/s, one after the other;
            0: no cap. Empty: ranks communicate on this machine, without network namespaces.
    """

    name: str
    entries: tuple[Entry, ...]
    batches: tuple[int, ...] = (BATCH,)
    quick: bool = True
    mbits: tuple[int, ...] = ()

    @property
    def ranks(self) -> int:
        """The largest number of ranks of a contender."""
        return max(entry.setup.ranks for entry in self.entries)

    def at(self, mbit: int) -> str:
        """Return its name on links of such a rate."""
        return f"{self.name}, {mbit} Mbit/s" if mbit else self.name

    def of(self, entries: Sequence[Entry]) -> "Comparison":
        """Return the same comparison with other contenders."""
        return replace(self, entries=tuple(entries))


def comparisons(
    device: str, max_ranks: int, quick: bool, mbits: tuple[int, ...] = ()
) -> list[Comparison]:
    """Return all comparisons, in the order of the table."""
    made = [*embedding_paths(device, quick), *whole_steps(device), growth(device)]
    made += [ranks_against_peers(device, ranks, mbits) for ranks in powers_of_2(max_ranks)[1:]]
    made += sweep(device, max_ranks)
    return [comparison for comparison in made if comparison.quick or not quick]


def peer(who: str, setup: Setup) -> Entry:
    """Return a peer with its fastest settings, on one rank."""
    return Entry(PEER_NAMES[who, setup.kind], who, setup, pages="huge")


def embedding_paths(device: str, quick: bool) -> list[Comparison]:
    """Return comparisons of the embeddings alone, by optimizer, with all peers that have it."""
    made = []
    for kind, rivals in {
        "sgd": (SPARSE, FBGEMM),
        "rowwise_adagrad": (FBGEMM,),
        "adam": (SPARSE,),
    }.items():
        setup = Setup("path", 16, kind, device=device)
        entries = [Entry(OURS, OURS, setup)]
        entries += [peer(who, setup) for who in rivals]
        if device == "cpu" and not quick:
            entries += [small_pages(peer(who, setup)) for who in rivals]
        made.append(Comparison(f"embeddings, {kind}", with_machine(entries)))
    return made


def small_pages(entry: Entry) -> Entry:
    """Return the same contender without huge pages."""
    return replace(entry, name=entry.name + SMALL_PAGES, pages="small")


SMALL_PAGES = ", small pages"
PEER_NAMES = {
    (SPARSE, "sgd"): "26 nn.Embedding(sparse) + SGD",
    (SPARSE, "adam"): "26 nn.Embedding(sparse) + SparseAdam",
    (FBGEMM, "sgd"): "fbgemm SGD",
    (FBGEMM, "rowwise_adagrad"): "fbgemm row-wise Adagrad",
}


def whole_steps(device: str) -> list[Comparison]:
    """Return the comparison of a rank's whole step with the same model over 26 sparse tables."""
    setup = Setup("mlp", 16, device=device)
    entries = [Entry(OURS, OURS, setup), peer(SPARSE, setup)]
    return [Comparison("MLP 16, 1 rank, peers", with_machine(entries), quick=False)]


def growth(device: str) -> Comparison:
    """Return the comparison of small and large tables with equally many distinct rows per batch."""
    setup = Setup("mlp", 16, "rowwise_adagrad", device=device)
    alone = replace(setup, model="path")
    both = (SMALL, STRETCHED)
    entries = [Entry(f"{OURS}, {data}", OURS, setup, data) for data in both]
    entries += [Entry(f"{OURS}, path, {data}", OURS, alone, data) for data in both]
    return Comparison(GROWTH, with_machine(entries))


def powers_of_2(most: int) -> list[int]:
    """Return the powers of 2 from 1 to `most`."""
    return [2**power for power in range(most.bit_length())]


def ranks_against_peers(device: str, ranks: int, mbits: tuple[int, ...] = ()) -> Comparison:
    """Return the whole MLP step on several ranks, against DDP over sparse tables and TorchRec."""
    setup = Setup("mlp", 16, ranks=ranks, device=device)
    entries = [
        Entry(f"{OURS}, {word}", OURS, replace(setup, placement=word)) for word in PLACEMENTS
    ]
    if device == "cpu":  # NCCL does not reduce sparse gradients
        entries.append(Entry(DDP, SPARSE, setup, pages="huge"))
    entries += [
        Entry(name, TORCHREC, replace(setup, placement=word), pages="huge")
        for word, name in TORCHREC_NAMES.items()
    ]
    name = f"MLP 16, {ranks} ranks, peers"
    return Comparison(name, with_machine(entries), (RANKS_BATCH,), mbits=mbits)


PLACEMENTS = ("auto", "replicated", "row_wise")


def sweep(device: str, max_ranks: int) -> list[Comparison]:
    """Return distrain's whole step by model, width, batch and ranks, with presets' optimizers."""
    made = []
    for ranks in powers_of_2(max_ranks):
        for dim in (16, 128):
            for model, kind in MODELS[device]:
                setup = Setup(model, dim, kind, ranks, device, "auto")
                entries = [Entry(OURS, OURS, setup)]
                if device == "cuda":
                    entries += [
                        Entry(f"{OURS}, {words}", OURS, replace(setup, **also))
                        for words, also in ON_GPU.items()
                        if dim == 16 or words in WIDE_ON_GPU
                    ]
                name = f"{model.upper()} {dim}, {ranks} rank{'s' * (ranks > 1)}"
                quick = device == "cuda" or (dim == 16 and ranks == 1)
                made.append(Comparison(name, with_machine(entries), BATCHES[device], quick))
    return made


MODELS: dict[str, tuple[tuple[str, str], ...]] = {"cpu": (("mlp", "sgd"), ("dlrm", "adagrad"))}
MODELS["cuda"] = (*MODELS["cpu"], ("dcn_v2", "adagrad"))
BF16: dict[str, Any] = {"precision": "bf16"}
GRAPH: dict[str, Any] = {"graph": True, "placement": "replicated"}
ON_GPU: dict[str, dict[str, Any]] = {
    "tf32": {"precision": "tf32"},
    "bf16": BF16,
    "graph": GRAPH,
    "graph, bf16": GRAPH | BF16,
    "graph, bf16, triton": GRAPH | BF16 | {"triton": True},
}
WIDE_ON_GPU = ("bf16", "graph, bf16", "graph, bf16, triton")
"""Modes at width 128: all contenders share a GPU's memory, so only these fit."""

BATCHES = {"cpu": (8_192, 65_536, 262_144), "cuda": (8_192, 65_536, 262_144, 400_000)}


def with_machine(entries: list[Entry]) -> tuple[Entry, ...]:
    """Return the contenders, and the one that measures the machine."""
    setup = replace(entries[0].setup, model="path", ranks=1, placement="")
    return (*entries, Entry(MACHINE, MACHINE, setup))
