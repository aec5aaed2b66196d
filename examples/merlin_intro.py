"""The models of the "Merlin Models" introduction, on a Merlin schema: MLPs, DLRM, towers, NCF.

    python examples/merlin_intro.py --quick
    python examples/merlin_intro.py --schema schema.pbtxt

The rows are generated. docs/examples.md maps each part to the notebook.
"""

import argparse
import json
import tempfile
from pathlib import Path

import merlin_data
import torch

import distrain
from distrain.loader import Dataset, Loader
from distrain.models import Blueprint, Embeddings, InputBlock
from distrain.models.blocks import MLPBlock, ParallelBlock
from distrain.models.heads import BinaryClassificationTask
from distrain.models.zoo.two_tower import tower_vectors
from distrain.schema import Schema

TARGET = "rating_binary"


def mlp(schema):
    """Build the first model: three blocks in sequence."""
    return Blueprint(
        InputBlock(schema, Embeddings(64)), MLPBlock([64, 32]), BinaryClassificationTask(TARGET)
    )


def mlp_by_hand(schema):
    """Build the same with `connect`: two blocks of one layer."""
    body = MLPBlock([64]).connect(MLPBlock([32]))
    return Blueprint(InputBlock(schema, Embeddings(64)), body, BinaryClassificationTask(TARGET))


def two_mlps(schema):
    """Build the third model: two parallel MLPs over the same input."""
    body = ParallelBlock(MLPBlock([256, 64]), MLPBlock([128, 64]), aggregation="concat")
    return Blueprint(InputBlock(schema, Embeddings(64)), body, BinaryClassificationTask(TARGET))


OWN = {"mlp": mlp, "mlp by hand": mlp_by_hand, "two mlps": two_mlps}
NAMED = {
    "dlrm": {"kind": "dlrm", "embedding_dim": 64, "bottom": [128, 64], "top": [64, 128]},
    "ncf": {"kind": "ncf", "mf_dim": 16, "embedding_dim": 16, "hidden": [64, 32]},
    "two-tower": {"kind": "two_tower", "embedding_dim": 64, "tower": [512, 256]},
}
RETRIEVAL = {
    "kind": "two_tower",
    "embedding_dim": 64,
    "tower": [512, 256],
    "task": "retrieval",
    "temperature": 2.0,
    "log_q": "batch",
}


def main():
    """Train each model; the last line is JSON."""
    args = arguments()
    schema = merlin_data.MOVIES if args.schema is None else Schema.load(args.schema)
    schema = merlin_data.prepared(schema, TARGET, 200 if args.quick else None)
    work = Path(tempfile.mkdtemp(prefix="merlin-intro-", dir=args.work))
    best_auc = merlin_data.write_rows(schema, work / "data", 20_000 if args.quick else 500_000)

    aucs = {name: train(args, work, name, make=make) for name, make in OWN.items()}
    aucs |= {name: train(args, work, name, model=model) for name, model in NAMED.items()}
    print(f"{'best possible':<12} AUC {best_auc:.4f}")
    shape, place = retrieve(args, work)
    print(f"towers for retrieval: user vectors {shape}, mean rank of liked items {place:.4f}")
    print(json.dumps(aucs | {"best_auc": best_auc, "mean_place": place}))


def arguments():
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few rows and small tables")
    parser.add_argument("--schema", type=Path, help="a Merlin schema with `rating_binary`")
    parser.add_argument("--work", type=Path, default=Path("runs/examples"), help="for all output")
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    return args


def job(args, work, **sections):
    """Return a job spec; `sections` are added to the common ones."""
    return {
        "name": "merlin-intro",
        "data": {"train": str(work / "data" / "train"), "valid": str(work / "data" / "valid")},
        "train": {
            "global_batch_size": 512 if args.quick else 4096,
            "optimizer": {"kind": "adam", "lr": 0.003},
            "epochs": 2,
        },
        "resources": {"backend": "inline", "device": "cpu"},
        **sections,
    }


def train(args, work, name, make=None, model=None):
    """Train one model and return the AUC of the validation rows."""
    sections = {} if model is None else {"model": model}
    run = distrain.fit(job(args, work, **sections), model_fn=make, run_dir=work / name)
    assert run.load_model().schema.target.name == TARGET
    print(f"{name:<12} AUC {run.summary.auc:.4f}", flush=True)
    return run.summary.auc


def retrieve(args, work):
    """Train two towers, with each liked item against the others of its batch.

    Returns:
        The shape of a batch of user vectors, and the mean rank of a liked item among all items of
        its batch, scaled from 0 (best) to 1; chance gives 0.5.
    """
    run = distrain.fit(job(args, work, model=RETRIEVAL), run_dir=work / "retrieval")
    model = run.load_model().model
    with Loader(Dataset(work / "data" / "valid"), batch_size=512) as loader, torch.no_grad():
        batch = loader.sample_batch()
        vectors = tower_vectors(model, batch)
    liked = batch.label == 1
    scores = vectors["user"][liked] @ vectors["item"].T
    own = scores[:, liked.nonzero().squeeze(1)].diagonal()
    return list(vectors["user"].shape), float((scores > own[:, None]).float().mean())


if __name__ == "__main__":
    main()
