"""A model as a plain module, exported program and ONNX graph: the model's own logits."""

import json
import re
import resource
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from onnx_files import graph_logits
from ragged_rows import draw_rows_of_ids, ragged, rows_of

from distrain.cli.models.export import command
from distrain.errors import InputError, ModelError, OutputError
from distrain.jobs.spec import (
    DcnSpec,
    DcnV2Spec,
    DeepFmSpec,
    DlrmSpec,
    MlpSpec,
    WideDeepSpec,
    parse_spec,
)
from distrain.jobs.spec.models.kinds import (
    CrossSpec,
    DlrmCrossSpec,
    NcfSpec,
    TabularSpec,
    TwoTowerSpec,
)
from distrain.jobs.spec.targets import with_targets
from distrain.jobs.spec.tasks import TaskSpec
from distrain.loader.batch import Batch
from distrain.models import build_model, export, load_model
from distrain.models.embeddings import EmbeddingCollection, Peers
from distrain.models.export import ScoringModel, export_program, write_export
from distrain.models.heads import Target
from distrain.models.saved_model import save_model
from distrain.schema import ColumnSchema, Schema, Tags

ID = Tags.CATEGORICAL
DOMAIN = {"domain": "letters"}
CROSSES = (CrossSpec(columns=("user", "shop"), num_bins=11),)
FLAT = [
    ColumnSchema("clicked", "float32", (Tags.TARGET,)),
    ColumnSchema("user", "int32", (ID, Tags.USER_ID, Tags.USER), cardinality=9),
    ColumnSchema("item", "int32", (ID, Tags.ITEM_ID, Tags.ITEM), cardinality=30),
    ColumnSchema("shop", "int32", (ID, Tags.ITEM), cardinality=5, embedding_dim=3),
    ColumnSchema("age", "float32", (Tags.CONTINUOUS, Tags.USER)),
    ColumnSchema("price", "float32", (Tags.CONTINUOUS, Tags.ITEM)),
]
LISTS = [
    *FLAT[:2],
    ColumnSchema("words", "int32", (ID, Tags.ITEM), cardinality=7, is_list=True, is_ragged=True),
    *FLAT[2:],
    ColumnSchema("seen", "int32", (ID, Tags.USER), cardinality=8, is_list=True, embedding_dim=3),
]
SCHEMAS = {"flat": Schema(tuple(FLAT)), "lists": Schema(tuple(LISTS))}
SPECS = {
    "mlp": MlpSpec(embedding_dim=None, hidden=(8,)),
    "mlp, members": MlpSpec(hidden=(8,), members=3),
    "tabular": TabularSpec(hidden=(8, 6), dropout=0.5, embedding_dropout=0.5),
    "tabular, one logit": TabularSpec(hidden=(8,), outputs=1),
    "dlrm": DlrmSpec(embedding_dim=4, bottom=(5,), top=(6,)),
    "dlrm_cross": DlrmCrossSpec(embedding_dim=4, bottom=(5,), top=(6,), crosses=CROSSES),
    "dcn": DcnSpec(embedding_dim=None, hidden=(8,)),
    "dcn, stacked": DcnSpec(embedding_dim=4, hidden=(8,), structure="stacked"),
    "dcn_v2": DcnV2Spec(embedding_dim=4, hidden=(8,)),
    "dcn_v2, low rank": DcnV2Spec(hidden=(8,), low_rank=3, structure="parallel"),
    "deepfm": DeepFmSpec(embedding_dim=4, hidden=(8,), dropout=0.5),
    "wide_deep": WideDeepSpec(embedding_dim=None, hidden=(8,), crosses=CROSSES),
    "two_tower": TwoTowerSpec(embedding_dim=4, tower=(6, 5), normalize=True, temperature=0.5),
    "ncf": NcfSpec(mf_dim=3, embedding_dim=4, hidden=(6, 5)),
}


# The others' blocks are in these. Writing ONNX and compiling take 7 s of a core each.
OFTEN = ("dlrm_cross", "two_tower", "mlp, members")
EACH_BLOCK = [
    pytest.param(SPECS[kind], marks=() if kind in OFTEN else pytest.mark.release, id=kind)
    for kind in ("tabular", "dcn", "dcn_v2, low rank", "deepfm", "wide_deep", "ncf", *OFTEN)
]


def batch_of(schema, rows, seed=0):
    generator = torch.Generator().manual_seed(seed)
    lists, flat = {}, []
    for column in schema.categorical:
        if column.holds_lists:
            lists[column.name] = ragged(draw_rows_of_ids(rows, column.cardinality, generator))
        else:
            flat.append(torch.randint(0, column.cardinality, (rows,), generator=generator).int())
    names = tuple(c.name for c in schema.categorical if not c.holds_lists)
    continuous = torch.randn(len(schema.continuous), rows, generator=generator)
    ids = torch.stack(flat).T
    return Batch(ids, continuous.T, None, names, schema.continuous.names, lists=lists)


def inputs_of(model, batch, dtype=torch.int64):
    lists = [batch.lists[name] for name in model.inputs.list_names]
    parts = [part.to(dtype) for ragged in lists for part in (ragged.values, ragged.lengths)]
    return (batch.categorical.to(dtype), batch.continuous, *parts)


@pytest.fixture(params=SCHEMAS)
def schema(request):
    return SCHEMAS[request.param]


@pytest.fixture(params=SPECS)
def spec(request):
    return SPECS[request.param]


@pytest.fixture
def model(spec, schema):
    """A model whose every weight differs from its neutral value."""
    combiners = {"words": "sqrtn"} if "words" in schema.names else {}
    made = build_model(schema, spec, seed=3, combiners=combiners).eval()
    with torch.no_grad():
        for name, values in made.dense.state_dict().items():
            if values.is_floating_point():  # running variances stay above 0
                values.add_(torch.rand(values.shape) * (0.5 if "running_var" in name else 0.1))
    return made


@torch.no_grad()
def test_the_plain_module_has_the_models_logits(schema, model):
    scoring = ScoringModel(model)
    for rows in (0, 1, 40):
        batch = batch_of(schema, rows)
        expected = model(batch)
        assert torch.equal(scoring(*inputs_of(model, batch)), expected)
        assert torch.equal(scoring(*inputs_of(model, batch, torch.int32)), expected)


@pytest.mark.parametrize("form", ["module", "torch", pytest.param("onnx", marks=pytest.mark.slow)])
def test_lists_are_cut_as_in_training(form, tmp_path):
    limits = {"words": 2, "seen": 1}
    limited = [
        replace(column, properties={"max_list_length": limits[column.name]})
        if column.name in limits
        else column
        for column in LISTS
    ]
    schema, spec = Schema(tuple(limited)), SPECS["wide_deep"]
    model = build_model(schema, spec, seed=3, combiners={"words": "mean", "seen": "sqrtn"}).eval()
    program = ScoringModel(model)
    if form == "torch":
        program = export_program(program).module()
    if form == "onnx":
        save_model(tmp_path / "model", model, spec, schema)
        write_export(tmp_path / "out", load_model(tmp_path / "model"), "onnx")
        inputs = json.loads((tmp_path / "out" / "inputs.json").read_text())["inputs"]
        facts = {"name": "words", "cardinality": 7, "max_list_length": 2}
        assert inputs[2]["columns"] == inputs[3]["columns"] == [facts]
    for rows in (40, 1, 0):
        batch = batch_of(schema, rows, seed=rows)
        whole = {name: rows_of(lists) for name, lists in batch.lists.items()}
        cut = {n: ragged([row[: limits[n]] for row in lists]) for n, lists in whole.items()}
        # ids that are cut are not checked by the loader, and may be any number
        odd = {n: [[*row[: limits[n]], *(99 for _ in row[limits[n] :])] for row in lists]
               for n, lists in whole.items()}  # fmt: skip
        given = inputs_of(model, replace(batch, lists={n: ragged(x) for n, x in odd.items()}))
        with torch.no_grad():
            expected = model(replace(batch, lists=cut))
            found = graph_logits(tmp_path / "out", given) if form == "onnx" else program(*given)
        torch.testing.assert_close(torch.as_tensor(found), expected, rtol=1e-5, atol=1e-5)
        assert form == "onnx" or torch.equal(found, expected)


@torch.no_grad()
def check_program(schema, model, program):
    for rows in (40, 1, 2, 0):
        batch = batch_of(schema, rows, seed=rows)
        assert torch.equal(program(*inputs_of(model, batch)), model(batch))


@pytest.mark.slow
@pytest.mark.parametrize("schema", [SCHEMAS["lists"]], ids=["lists"])
@pytest.mark.parametrize("spec", EACH_BLOCK)
def test_programs_and_graphs_have_the_models_logits(schema, spec, model, tmp_path):
    """A program of torch for any number of rows; an ONNX graph, whose sums may differ a little."""
    check_program(schema, model, export_program(ScoringModel(model)).module())
    save_model(tmp_path / "model", model, spec, schema)
    write_export(tmp_path / "out", load_model(tmp_path / "model"), "onnx")
    for rows in (40, 1, 2, 0):
        batch = batch_of(schema, rows, seed=rows)
        logits = graph_logits(tmp_path / "out", inputs_of(model, batch))
        with torch.no_grad():
            np.testing.assert_allclose(logits, model(batch).numpy(), rtol=1e-5, atol=1e-5)


@torch.no_grad()
def check_compiled(function, arguments, backend):
    torch.compiler.reset()
    compiled = torch.compile(function, fullgraph=True, dynamic=False, backend=backend)
    torch.testing.assert_close(compiled(*arguments), function(*arguments))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of the compiler's own use of torch
@pytest.mark.parametrize("schema", [SCHEMAS["lists"]], ids=["lists"])
@pytest.mark.parametrize("spec", EACH_BLOCK)
def test_the_plain_module_is_one_graph_that_gives_the_same(schema, model):
    check_compiled(ScoringModel(model), inputs_of(model, batch_of(schema, 40)), "aot_eager")


def test_tables_of_bf16_become_float32_and_shared_ones_stay_one():
    columns = [
        ColumnSchema(name, "int32", (ID,), cardinality=9, properties=DOMAIN) for name in "ab"
    ]
    schema = Schema((*columns, FLAT[-1]))
    model = build_model(
        schema,
        SPECS["deepfm"],
        seed=0,
        make_tables=partial(EmbeddingCollection, dtype=torch.bfloat16),
    )
    scoring = ScoringModel(model.eval())
    shapes = sorted(tuple(lookup.weight.shape) for lookup in scoring.lookups)
    assert shapes == [(9, 1), (9, 4)]
    assert {lookup.weight.dtype for lookup in scoring.lookups} == {torch.float32}
    batch = batch_of(schema, 20)
    with torch.no_grad():
        assert torch.equal(scoring(*inputs_of(model, batch)), model(batch))


@pytest.fixture
def saved(tmp_path):
    schema, spec = SCHEMAS["lists"], SPECS["mlp"]
    save_model(tmp_path / "model", build_model(schema, spec, seed=3), spec, schema)
    return load_model(tmp_path / "model")


def test_a_folder_appears_whole_or_not_at_all(saved, tmp_path, monkeypatch, wording):
    monkeypatch.setattr(
        export, "export_program", Mock(side_effect=RuntimeError("a block that torch cannot follow"))
    )
    wording.refused(ModelError, lambda: write_export(tmp_path / "out", saved, "torch"))
    monkeypatch.setattr(export, "export_program", lambda _: None)
    monkeypatch.setattr(torch.export, "save", lambda _, file: file.write(bytes(5000)))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        wording.refused(OutputError, lambda: write_export(tmp_path / "out", saved, "torch"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert [one.name for one in tmp_path.iterdir()] == ["model"]


@pytest.mark.slow
def test_the_command_writes_a_program_that_torch_alone_loads(saved, tmp_path):
    out = tmp_path / "out"
    result = CliRunner().invoke(command, [str(tmp_path / "model"), str(out)])
    assert result.exit_code == 0, result.output
    assert re.fullmatch(r"loading the model\nmlp for torch, \S+ [KM]iB: \S+out\n", result.output)
    assert {file.name for file in out.iterdir()} == {"model.pt2", "inputs.json", "manifest.json"}
    program = torch.export.load(out / "model.pt2").module()
    check_program(SCHEMAS["lists"], saved.model.eval(), program)
    told = json.loads((out / "inputs.json").read_text())
    assert [entry["name"] for entry in told["inputs"]] == [
        "categorical", "continuous", "words.values", "words.lengths", "seen.values", "seen.lengths",
    ]  # fmt: skip
    assert told["inputs"][0]["columns"][1] == {"name": "item", "cardinality": 30}
    assert told["inputs"][2]["shape"] == ["ids of words"]
    assert told["model"]["kind"] == "mlp"
    again = CliRunner().invoke(command, [str(tmp_path / "model"), str(out)])
    assert isinstance(again.exception, OutputError)


def test_exports_that_cannot_be_made_are_refused(saved, tmp_path, monkeypatch, wording):
    spread = partial(EmbeddingCollection, placements=["row_wise"] * 3, peers=Peers(0, 2))
    over_ranks = build_model(SCHEMAS["flat"], MlpSpec(), seed=0, make_tables=spread)
    spec = MlpSpec(hidden=(8,), tasks={"continuous": TaskSpec(target="price", kind="regression")})
    schema = with_targets(
        SCHEMAS["flat"], parse_spec({"data": {"train": "t"}, "model": spec.model_dump()})
    )
    save_model(tmp_path / "named", build_model(schema, spec, seed=0), spec, schema)
    named = load_model(tmp_path / "named")
    wording.refused(
        ModelError,
        lambda: ScoringModel(over_ranks),
        lambda: write_export(tmp_path / "out", named, "onnx"),
    )
    monkeypatch.setattr(export, "find_spec", lambda name: None)
    wording.refused(InputError, lambda: write_export(tmp_path / "out", saved, "onnx"))
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_the_examples_of_the_page_run(tmp_path, monkeypatch):
    pytest.importorskip("onnxruntime")
    page = Path(__file__).parents[3] / "docs" / "models" / "export.md"
    examples = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.M | re.S)
    with_torch, with_onnx, in_python = (code for code in examples if "faiss" not in code)
    columns = [ColumnSchema(name, "int32", (ID,), cardinality=9) for name in "ab"]
    schema, spec = Schema((*columns, FLAT[-1])), SPECS["dcn"]
    folder = tmp_path / "runs" / "NAME" / "model"
    folder.parent.mkdir(parents=True)
    model = build_model(schema, spec, seed=0).eval()
    save_model(folder, model, spec, schema)
    monkeypatch.chdir(tmp_path)
    for words in (["exported"], ["exported-onnx", "--to", "onnx"]):
        done = CliRunner().invoke(command, ["runs/NAME", *words])
        assert done.exit_code == 0, done.output
    names: dict[str, Any] = {
        "categorical": torch.tensor([[3, 0], [1, 7]]),
        "continuous": torch.tensor([[0.5], [1.25]]),
    }
    expected = model(Batch(names["categorical"], names["continuous"], None, ("a", "b"), ("price",)))
    exec(with_torch, names)
    assert torch.equal(names["logits"], expected)
    exec(with_onnx, names)
    np.testing.assert_allclose(names["probability"], expected.detach().sigmoid().numpy(), atol=1e-5)
    exec(in_python, names)
    assert torch.equal(
        names["program"].module()(names["categorical"], names["continuous"]), expected
    )


def test_a_number_that_is_called_logits_is_described_as_a_number() -> None:
    number, click = Target("logits", kind="regression"), Target("click")
    assert export._output("logits", number)["target"] == "regression"
    assert "target" not in export._output("logits", click)
