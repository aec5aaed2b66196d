"""`distrain plan` says what will be read and held, and starts nothing."""

import json

import pytest
import yaml
from click.testing import CliRunner
from small_jobs import small_document, write_prepared

from distrain.cli.main import cli
from distrain.errors import DataError, SpecError
from distrain.jobs.spec import parse_spec
from distrain.train.data.inputs import check_inputs


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    root = tmp_path_factory.mktemp("plan")
    document = small_document(write_prepared(root / "prepared"))
    (root / "job.yaml").write_text(yaml.safe_dump(document))
    return root / "job.yaml"


def planned(job, *options):
    done = CliRunner().invoke(cli, ["plan", str(job), *options], catch_exceptions=False)
    assert done.exit_code == 0
    return done.stdout if "--json" in options else done.output


def test_the_plan_tells_what_the_footers_and_the_spec_say(job):
    plan = json.loads(planned(job, "--json", "--set", "train.max_steps=null"))
    assert (plan["rows"], plan["files"], plan["row_groups"]) == (10_500, 3, 12)
    assert plan["row_group_rows"] == [500, 1000]
    assert (plan["steps_per_epoch"], plan["steps"]) == (53, 53)
    assert plan["share"]["num_ranks"] == 2
    assert (plan["share"]["lanes"], plan["share"]["rows_per_step"]) == (12, 104)
    assert plan["slices"] == 1
    assert (plan["reader"], plan["shuffle"], plan["chunk_rows"]) == ("arrow", "chunk", 1000)
    inputs = check_inputs(parse_spec(yaml.safe_load(job.read_text())))
    assert plan["fingerprint"] == inputs.train.fingerprint
    terms = ("blocks", "decode", "order", "schedule")
    assert plan["share"]["memory_bytes"] == sum(plan["memory"][f"{term}_bytes"] for term in terms)
    of_eight = json.loads(planned(job, "--json", "--ranks", "8"))["share"]
    assert (of_eight["num_ranks"], of_eight["lanes"]) == (8, 3)
    options = ("--set", "data.parts_per_chunk=3", "--set", "train.max_steps=7")
    plan = json.loads(planned(job, "--json", *options).splitlines()[0])
    assert (plan["chunk_rows"], plan["steps"]) == (3000, 7)
    with pytest.raises(SpecError):
        planned(job, "--set", "embeddings.memory_gib=0.00001")


def test_mistakes_and_notes_come_as_json_too(job):
    words = ["plan", str(job), "--json", "--scheduler", "tcp://elsewhere:1"]
    done = CliRunner().invoke(cli, words)
    (note,) = json.loads(done.stdout)["notes"]
    assert note.startswith(
        "not checked, because workers may be on other machines: resources.device"
    )
    done = CliRunner().invoke(cli, [*words, "--set", "data.train=/nowhere"])
    assert isinstance(done.exception, DataError)
    (mistake,) = json.loads(done.stdout)["errors"]
    assert mistake == done.exception.to_json()
    assert "/nowhere" in str(mistake)
    done = CliRunner().invoke(cli, [*words, "--set", "data.train=/x", "--set", "data.valid=/y"])
    mistakes = json.loads(done.stdout)["errors"]
    assert ["/x" in str(mistakes[0]), "/y" in str(mistakes[1])] == [True, True]


@pytest.mark.slow
def test_tables_are_placed_with_bytes_and_reasons(job):
    options = ["--set", "embeddings.memory_gib=1", "--set", "embeddings.tables={C26: row_wise}"]
    tables = json.loads(planned(job, "--json", *options))["tables"]
    assert [table["name"] for table in tables["tables"]] == [f"C{i}" for i in range(1, 27)]
    last = tables["tables"][-1]
    rows = last["rows"]
    assert (last["placement"], last["dim"]) == ("row_wise", 4)
    # Adagrad: as much state as weights; two ranks own half of the rows each.
    assert last["weight_bytes"] == last["optimizer_bytes"] == -(-rows // 2) * 16
    assert tables["budget_bytes"] == 2**30
    assert tables["bytes_per_rank"] == sum(
        table["weight_bytes"] + table["optimizer_bytes"] for table in tables["tables"]
    )
    assert "row_wise" in planned(job, *options)
