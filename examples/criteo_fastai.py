"""Criteo with fastai's Learner and TabularModel, fed by distrain's loader.

    python examples/criteo_fastai.py --quick

As in NVTabular's FastAI notebook: embeddings of at most 16 numbers, batch-normed continuous
columns, layers of 512 and 256, two outputs and cross entropy. Reports the area under the ROC curve
and the average precision.
"""

import time

import criteo_data
import torch
from fastai.basics import Learner
from fastai.metrics import APScoreBinary, RocAucBinary
from fastai.tabular.model import TabularModel, emb_sz_rule

from distrain import Dataset, Loader
from distrain.interop.fastai import data_loaders


def main() -> None:
    """Train on generated rows or on `--data`, save, load, and validate the loaded model."""
    args = criteo_data.options(__doc__.splitlines()[0]).parse_args()
    data = criteo_data.criteo(args, *((100_000, 25_000) if args.quick else (2_000_000, 200_000)))
    batch_size = args.batch_size or (2_000 if args.quick else 65_536)
    epochs = args.epochs or 1
    torch.manual_seed(0)

    train = Loader(Dataset(data.train), batch_size=batch_size)
    valid = Loader(Dataset(data.valid), batch_size=65_536, shuffle="none")
    schema = train.dataset.schema
    sizes = [(c.cardinality, min(16, emb_sz_rule(c.cardinality))) for c in schema.categorical]
    learn = Learner(
        data_loaders(train, valid, path=data.work),
        TabularModel(sizes, n_cont=len(schema.continuous), out_sz=2, layers=[512, 256]),
        loss_func=torch.nn.CrossEntropyLoss(),
        metrics=[RocAucBinary(), APScoreBinary()],
    )
    start_s = time.perf_counter()
    learn.fit(epochs, 1.32e-2)
    fit_s = time.perf_counter() - start_s

    path = learn.save("criteo_fastai")
    learn.load("criteo_fastai")
    log_loss, auc, average_precision = learn.validate()
    rows = epochs * (train.num_rows + valid.num_rows)
    result = {
        "rows": rows,
        "rows_per_s": rows / fit_s,
        "log_loss": log_loss,
        "auc": auc,
        "average_precision": average_precision,
        "model": str(path),
    }
    criteo_data.tell(result, data.best_auc)


if __name__ == "__main__":
    main()
