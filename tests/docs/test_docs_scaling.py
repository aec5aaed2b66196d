"""The tables of docs/scaling.md are those that the code gives."""

import re

import scale_table
from scale_table import MACHINES, PAGE, numbers, steps

BETWEEN = r"<!-- {0}: [^\n]*-->(.*?)<!-- end of {0} -->"


def written(name: str) -> list[str]:
    """The lines of a piece of the page."""
    found = re.search(BETWEEN.format(name), PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    return found[1].strip().splitlines()


def test_each_number_stands_there_with_its_source() -> None:
    assert written("numbers") == numbers().splitlines()
    for line in written("numbers")[2:]:
        field, _, _, source = line.strip("| ").split(" | ", 3)
        assert re.search(r"\*\*(published|demanded|measured|assumed)\*\*", source), field


def test_a_row_of_steps_is_what_the_model_predicts_now() -> None:
    row = steps(MACHINES[0], ranks=(8,), widths=(16,)).splitlines()[2]
    # The memory depends on torch's version.
    assert row.split("|")[:-2] == written("steps")[2].split("|")[:-2]


def test_only_what_stands_between_markers_is_replaced() -> None:
    page = "a\n<!-- steps: made -->\nold\n<!-- end of steps -->\nb\n"
    new = scale_table.made_anew(page, {"steps": "new"})
    assert new == "a\n<!-- steps: made -->\n\nnew\n\n<!-- end of steps -->\nb\n"
    assert scale_table.made_anew(new, {"steps": "new"}) == new
