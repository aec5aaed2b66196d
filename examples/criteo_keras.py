"""Criteo with a Keras 3 model on torch, fed by distrain's loader.

    python examples/criteo_keras.py --quick

The model of NVTabular's TensorFlow notebook: an embedding for each categorical column, all columns
concatenated, three layers of 128, SGD. It is validated after each epoch, for which the notebook
needed a callback.
"""

import os
import time

os.environ["KERAS_BACKEND"] = "torch"  # before Keras is imported

import criteo_data
import keras
from keras import layers

from distrain import Dataset, Loader
from distrain.interop.keras import KerasDataset


def build(schema) -> keras.Model:
    """Build the model from the schema, with inputs by column name."""
    ids = {c.name: keras.Input((1,), name=c.name, dtype="int32") for c in schema.categorical}
    numbers = {c.name: keras.Input((1,), name=c.name) for c in schema.continuous}
    embedded = [
        layers.Flatten()(layers.Embedding(c.cardinality, 16)(ids[c.name]))
        for c in schema.categorical
    ]
    x = layers.Concatenate()([*embedded, *numbers.values()])
    for _ in range(3):
        x = layers.Dense(128, activation="relu")(x)
    x = layers.Dense(1, activation="sigmoid", name="output")(x)
    return keras.Model(ids | numbers, x)


def main() -> None:
    """Train on generated rows or on `--data`, save, load, and evaluate the loaded model."""
    args = criteo_data.options(__doc__.splitlines()[0]).parse_args()
    data = criteo_data.criteo(args, *((100_000, 25_000) if args.quick else (2_000_000, 200_000)))
    batch_size = args.batch_size or (2_000 if args.quick else 65_536)
    epochs = args.epochs or 2
    keras.utils.set_random_seed(0)

    train = KerasDataset(Loader(Dataset(data.train), batch_size=batch_size))
    valid = KerasDataset(Loader(Dataset(data.valid), batch_size=65_536, shuffle="none"))
    model = build(train.loader.dataset.schema)
    # The mean loss of a large batch has small gradients: SGD needs a large learning rate.
    auc = keras.metrics.AUC(name="auc")
    model.compile(keras.optimizers.SGD(2.0), "binary_crossentropy", metrics=[auc])
    start_s = time.perf_counter()
    model.fit(train, validation_data=valid, epochs=epochs, verbose=2)
    fit_s = time.perf_counter() - start_s

    path = data.work / "criteo_keras.keras"
    model.save(path)
    scored = keras.saving.load_model(path).evaluate(valid, return_dict=True, verbose=0)
    rows = epochs * (train.loader.num_rows + valid.loader.num_rows)
    result = {
        "rows": rows,
        "rows_per_s": rows / fit_s,
        "log_loss": scored["loss"],
        "auc": scored["auc"],
        "model": str(path),
    }
    criteo_data.tell(result, data.best_auc)


if __name__ == "__main__":
    main()
