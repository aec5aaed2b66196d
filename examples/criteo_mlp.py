"""Criteo with the MLP of NVTabular's TensorFlow notebook: train, validate, save, load, score.

    python examples/criteo_mlp.py --quick

An embedding of 16 numbers for each of the 26 categorical columns, three layers of 128, SGD, and
batches of 65,536 rows. It only needs `distrain train` and a job spec.
"""

import json
import time

import criteo_data
import yaml


def main() -> None:
    """Train on generated rows or on `--data`, then score the validation rows again."""
    args = criteo_data.options(__doc__.splitlines()[0]).parse_args()
    data = criteo_data.criteo(args, *((100_000, 25_000) if args.quick else (2_000_000, 200_000)))
    run_dir = data.work / f"criteo-mlp-{time.strftime('%Y%m%d-%H%M%S')}"
    job = data.work / "criteo_mlp.yaml"
    job.write_text(yaml.safe_dump(spec(args, data), sort_keys=False))

    criteo_data.distrain("train", job, "--run-dir", run_dir)
    summary = json.loads((run_dir / "summary.json").read_text())

    # The saved model is loaded by another process.
    scored = json.loads(
        criteo_data.distrain("evaluate", run_dir / "model", data.valid, "--json", read=True)
    )
    result = {
        "rows": summary["rows"],
        "rows_per_s": summary["rows_per_s"],
        "log_loss": scored["log_loss"],
        "auc_in_training": summary["auc"],
        "auc": scored["auc"],
        "model": str(run_dir / "model"),
    }
    criteo_data.tell(result, data.best_auc)


def spec(args, data):
    """Return the job spec, which replaces the notebook's cells."""
    return {
        "name": "criteo-mlp",
        "data": {"train": str(data.train), "valid": str(data.valid)},
        "model": {"kind": "mlp", "embedding_dim": 16, "hidden": [128, 128, 128]},
        "train": {
            "global_batch_size": args.batch_size or (2_000 if args.quick else 65_536),
            "epochs": args.epochs or 2,
            # The mean loss of a large batch has small gradients: SGD needs a large learning rate.
            "optimizer": {"kind": "sgd", "lr": 2.0},
        },
        "resources": {"num_ranks": 2},
    }


if __name__ == "__main__":
    main()
