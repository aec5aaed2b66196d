import json
import shlex
from functools import partial

import click
import pytest
from click.testing import CliRunner

from distrain.cli.data.synth import command
from distrain.cli.options import COUNT
from distrain.errors import InputError


def test_counts_take_suffixes():
    counts = {"7": 7, "100k": 100_000, "1.5M": 1_500_000, "4G": 4 * 10**9, "1_000": 1000}
    assert {text: COUNT.convert(text, None, None) for text in counts} == counts
    for text in ("", "-1", "1.5", "1.2345k", "k", "1T", "1e6", "ten"):
        with pytest.raises(click.BadParameter):
            COUNT.convert(text, None, None)


def test_the_command_writes_the_data_and_names_the_next_step(tmp_path):
    out = tmp_path / "my clicks"
    words = ["--rows", "1k", "--valid-rows", "200", "--files", "2", "--out", str(out)]
    found = CliRunner().invoke(command, words, catch_exceptions=False)
    assert found.exit_code == 0
    document = json.loads((out / "planted.json").read_text())
    assert document["splits"]["train"]["rows"] == 1000
    assert f"{document['splits']['train']['bayes_auc']:.4f}" in found.output
    (following,) = [line for line in found.output.splitlines() if line.startswith("next: ")]
    assert shlex.split(following)[1:] == [
        *("distrain", "prep", f"{out}/train-*.tsv"),
        *("--valid", f"{out}/valid-*.tsv"),
        *("--out", f"{out}-prepared"),
    ]


def test_bad_requests_reach_the_caller_as_our_errors(tmp_path, wording):
    words = ["--rows", "0", "--out", str(tmp_path / "out")]
    wording.refused(InputError, partial(CliRunner().invoke, command, words, catch_exceptions=False))
