"""The "Customize and Extend Merlin Models" lab: DLRM from blocks, a hashed cross, and DCN crosses.

    python examples/merlin_extend.py --quick

The rows are generated. docs/examples.md explains this file cell by cell.
"""

import argparse
import json
import tempfile
from pathlib import Path

import merlin_data

import distrain
from distrain.loader import Dataset, Loader
from distrain.models import Blueprint, Embeddings, InputBlock
from distrain.models.blocks import (
    ContinuousFeatures,
    CrossBlock,
    DotProductInteraction,
    Filter,
    HashedCross,
    LogitsTemperatureScaler,
    MLPBlock,
    ParallelBlock,
)
from distrain.models.heads import BinaryClassificationTask
from distrain.models.shapes import Features
from distrain.schema import ColumnSchema, Schema, Tags

CATEGORICAL, CONTINUOUS, USER, ITEM = Tags.CATEGORICAL, Tags.CONTINUOUS, Tags.USER, Tags.ITEM

SHOP = Schema(
    (
        ColumnSchema("user_id", "int32", (CATEGORICAL, USER, Tags.USER_ID), 351_050),
        ColumnSchema("ts_weekday", "int32", (CATEGORICAL, USER), 8),
        ColumnSchema("ts_hour", "int32", (CATEGORICAL, USER), 25),
        ColumnSchema("product_id", "int32", (CATEGORICAL, ITEM, Tags.ITEM_ID), 51_425),
        ColumnSchema("cat_0", "int32", (CATEGORICAL, ITEM), 14),
        ColumnSchema("cat_1", "int32", (CATEGORICAL, ITEM), 61),
        ColumnSchema("cat_2", "int32", (CATEGORICAL, ITEM), 90),
        ColumnSchema("brand", "int32", (CATEGORICAL, ITEM), 2654),
        ColumnSchema("price", "float32", (CONTINUOUS, ITEM)),
        ColumnSchema("relative_price", "float32", (CONTINUOUS, ITEM)),
        ColumnSchema("target", "int32", (Tags.TARGET, Tags.BINARY_CLASSIFICATION)),
    )
)
"""The lab's schema."""


def dlrm_input():
    """Return embeddings, and continuous columns projected to their width, as a dictionary."""
    bottom = ContinuousFeatures().connect(MLPBlock([128, 64]))
    return ParallelBlock(
        {"embeddings": Filter(part="", kind="categorical"), "bottom_block": bottom},
        aggregation=None,
    )


def task():
    """Return a task with one logit, scaled down by a temperature."""
    return BinaryClassificationTask("target", pre=LogitsTemperatureScaler(temperature=2))


def dlrm_with_cross(schema):
    """Build DLRM from blocks, and beside it a linear model of the cross of cat_0 and cat_1."""
    cross = HashedCross(["cat_0", "cat_1"], num_bins=1000, dim=1)
    inputs = InputBlock(schema, Embeddings(64), Embeddings(part="wide", names=[], crosses=[cross]))
    interaction = dlrm_input().connect_with_shortcut(
        DotProductInteraction(), shortcut_filter=Filter("bottom_block"), aggregation="concat"
    )
    body = ParallelBlock(
        {"dlrm_interaction": interaction, "cross_body": Filter(part="wide")}, aggregation="concat"
    )
    return Blueprint(inputs, body.connect(MLPBlock([64, 128, 256])), task())


def crosses_instead(schema):
    """Build the same inputs with DCN's crosses instead of the dot products."""
    interaction = ParallelBlock(
        {"cross_inter_body": CrossBlock(2), "bottom_block": Filter("bottom_block")},
        aggregation="concat",
    )
    body = dlrm_input().connect(interaction, MLPBlock([64, 128, 512]))
    return Blueprint(InputBlock(schema, Embeddings(64)), body, task())


def main():
    """Show a batch, then train both models; the last line is JSON."""
    args = arguments()
    schema = merlin_data.prepared(SHOP, "target", 200 if args.quick else 20_000)
    work = Path(tempfile.mkdtemp(prefix="merlin-extend-", dir=args.work))
    rows = 20_000 if args.quick else 500_000
    best_auc = merlin_data.write_rows(schema, work / "data", rows)

    look(work)
    aucs = {make.__name__: train(args, work, make) for make in (dlrm_with_cross, crosses_instead)}
    print(f"{'best possible':<16} AUC {best_auc:.4f}")
    print(json.dumps(aucs | {"best_auc": best_auc}))


def look(work):
    """Print the outputs of the first blocks for five rows."""
    valid = Dataset(work / "data" / "valid", need_label=False)
    with Loader(valid, batch_size=5, shuffle="none", lanes=1) as loader:
        batch = loader.sample_batch()
    model = dlrm_with_cross(valid.schema).build(seed=0)
    embedded = model.embeddings.lookup(*model.table_ids(batch))
    value = Features(embedded, batch.continuous)
    inputs = dlrm_input()
    inputs.attach(model.inputs.shape)
    made = inputs(value)
    print(f"bottom_block     {list(made['bottom_block'].shape)}")
    print(f"embeddings       {list(made['embeddings'].embedded[0].shape)}")
    cross = HashedCross(["cat_0", "cat_1"], num_bins=10)
    print(f"{cross.name} as one-hot:\n{cross.one_hot([batch['cat_0'], batch['cat_1']])}")


def train(args, work, make):
    """Train two epochs with Adam; return the AUC after each."""
    data = {split: str(work / "data" / split) for split in ("train", "valid")}
    batch_size = 512 if args.quick else 4096
    job = {
        "name": "merlin-extend",
        "data": data,
        "train": {
            "global_batch_size": batch_size,
            "epochs": 2,
            "optimizer": {"kind": "adam", "lr": 0.003},
        },
        "evaluate": {"every_steps": -(-len(Dataset(data["train"])) // batch_size)},
        "resources": {"backend": "inline", "device": "cpu"},
    }
    run = distrain.fit(job, model_fn=make, run_dir=work / make.__name__)
    records = run.records
    aucs = [record.auc for record in records if record.split == "valid"]
    print(f"{make.__name__:<16} AUC {' then '.join(f'{auc:.4f}' for auc in aucs)}", flush=True)
    return aucs


def arguments():
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few rows and small tables")
    parser.add_argument("--work", type=Path, default=Path("runs/examples"), help="for all output")
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    return args


if __name__ == "__main__":
    main()
