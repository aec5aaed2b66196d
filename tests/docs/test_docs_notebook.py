"""The page for people who use Python is a notebook that runs."""

import os
import re
import sys
from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat", reason="the extra 'dev' is not installed")
nbclient = pytest.importorskip("nbclient", reason="the extra 'dev' is not installed")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

PAGE = Path(__file__).parents[2] / "docs" / "python.md"
CELLS = re.compile(r"^```(python|console)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def cells_of(page):
    """The page's cells; commands get the `!` that the page says they need in a notebook."""
    for kind, text in CELLS.findall(page):
        yield (
            text
            if kind == "python"
            else text.replace("$ distrain", f"!{sys.executable} -m distrain")
        )


@pytest.fixture(scope="module")
def notebook(tmp_path_factory):
    """The page's notebook as a kernel of its own ran it."""
    cells = [nbformat.v4.new_code_cell(text) for text in cells_of(PAGE.read_text())]
    cells.append(nbformat.v4.new_code_cell("print(*trials['rate']); print(*trials['loss'])"))
    made = nbformat.v4.new_notebook(cells=cells)
    folder = tmp_path_factory.mktemp("notebook")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("IPYTHONDIR", str(folder / "ipython"))
        patch.setenv("JUPYTER_PLATFORM_DIRS", "1")
        patch.setenv(
            "PYTHONPATH",
            os.pathsep.join(filter(None, [str(PAGE.parents[1]), os.environ.get("PYTHONPATH")])),
        )
        client = nbclient.NotebookClient(made, resources={"metadata": {"path": str(folder)}})
        client.execute()
    return made


def cell(notebook, word):
    """The outputs of the one cell that has a word, as text by kind."""
    (found,) = [cell for cell in notebook.cells if word in cell.source]
    return [output.get("data", {"text/plain": output.get("text", "")}) for output in found.outputs]


def test_training_shows_a_bar_and_a_chart_and_a_short_run(notebook):
    shown, run = cell(notebook, 'run = distrain.fit(job, run_dir="runs/first")')
    assert "<progress value=" in shown["text/html"]
    assert "data:image/svg+xml" in shown["text/html"]
    assert re.fullmatch(
        r"<Run runs/first: succeeded, 48 steps, AUC 0\.\d+ ± 0\.\d+ on \d+ validation rows>",
        run["text/plain"],
    )


def test_history_metrics_and_scores_of_raw_rows_are_tables(notebook):
    (history,) = cell(notebook, "run.history[")
    assert "loss" in history["text/html"]
    (scores,) = cell(notebook, "run.predict(new)")
    assert "probability" in scores["text/html"]
    (metrics,) = cell(notebook, 'run.evaluate("data/valid")')
    assert re.fullmatch("<auc 0.*; 800 rows>", metrics["text/plain"])
    *shown, accuracy = cell(notebook, "class Accuracy(Metric)")
    assert "step 48: accuracy 0." in "".join(one.get("text/plain", "") for one in shown)
    assert "accuracy" in accuracy["text/plain"]


def test_five_trials_with_five_rates_give_five_results(notebook):
    (printed,) = cell(notebook, "print(*trials")
    rates, losses = (line.split() for line in printed["text/plain"].splitlines())
    assert len(set(rates)) == len(set(losses)) == 5
