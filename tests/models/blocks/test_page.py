"""The page of blocks and heads: its Python runs and prints what it says, and nothing is missing."""

import re
from pathlib import Path

import pytest

import distrain.models.blocks
import distrain.models.heads
from distrain.models.blocks import Block

PAGE = Path(__file__).resolve().parents[3] / "docs" / "models" / "blocks.md"


@pytest.fixture(scope="module")
def text():
    return PAGE.read_text()


def test_examples_print_what_they_say(text, capsys):
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    names = {}
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), names)
    shown = re.findall(r"^print\(.*\)  # (.*)$", "".join(blocks), re.MULTILINE)
    assert len(shown) == 6
    assert capsys.readouterr().out.splitlines() == shown
    assert next(names["model"].dense.parameters()).isfinite().all()


def test_the_error_shown_is_the_one_raised(text):
    with pytest.raises(distrain.errors.ModelError) as caught:
        distrain.models.blocks.ParallelBlock(
            {
                "wide": distrain.models.blocks.MLPBlock([2]),
                "deep": distrain.models.blocks.MLPBlock([8, 3]),
            },
            aggregation="sum",
        ).attach(distrain.models.shapes.Flat(4))
    assert caught.value.message in text


@pytest.mark.parametrize("room", [distrain.models.blocks, distrain.models.heads])
def test_every_block_and_head_is_on_the_page(room, text):
    classes = {n for n, v in vars(room).items() if isinstance(v, type) and issubclass(v, Block)}
    bases = {"Block", "EventBlock", "Task", "LabelTask"}
    missing = {name for name in classes - bases if f"| `{name}(" not in text}
    assert not missing
