"""A job with a filter is a job on files of the filter's rows, bit for bit."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch
from small_jobs import make_spec
from trained import trained

from distrain.errors import SpecError
from distrain.jobs.events import EvaluationDone, Event, StepsDone
from distrain.jobs.run_paths import RunPaths
from distrain.train.data.inputs import check_inputs, read_inputs
from distrain.train.data.job_tables import hand_on

FILTER = "C5 > 3 and not I1 < -0.5"
JOB = (
    "resources={backend: inline, num_ranks: 1}",
    "train={global_batch_size: 500, max_steps: 10, log_every_steps: 5}",
    "evaluate.every_steps=5",
)


@pytest.fixture(scope="module")
def filtered(prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same row groups without the rows for which the filter does not hold."""
    folder = tmp_path_factory.mktemp("filtered")
    for path in sorted(prepared.glob("*/*.parquet")):
        to = folder / path.relative_to(prepared)
        to.parent.mkdir(exist_ok=True)
        groups = pq.ParquetFile(path)
        with pq.ParquetWriter(to, groups.schema_arrow) as writer:
            for number in range(groups.num_row_groups):
                rows = groups.read_row_group(number)
                c5, i1 = rows["C5"].to_numpy(), rows["I1"].to_numpy()
                writer.write_table(rows.filter((c5 > 3) & (i1 >= -0.5)))
    (folder / "schema.pbtxt").write_bytes((prepared / "schema.pbtxt").read_bytes())
    return folder


def train(
    prepared: Path, root: Path, *overrides: str
) -> tuple[dict[str, torch.Tensor], list[Event]]:
    spec = make_spec(prepared, *JOB, *overrides)
    paths = RunPaths(root)
    hand_on(check_inputs(spec), spec, paths.tables)
    trainer, events = trained(spec, root, inputs=check_inputs(spec, handed=paths.tables))
    weights = {name: value.clone() for name, value in trainer.model.state_dict().items()}
    kinds = (StepsDone, EvaluationDone)
    return weights, [event for event in events if isinstance(event, kinds)]


@pytest.mark.parametrize("options", [(), ("data.shuffle=full",), ("data.cache_dir=CACHE",)])
def test_a_filter_trains_as_files_of_its_rows_do(
    prepared: Path, filtered: Path, tmp_path: Path, options: tuple[str, ...]
) -> None:
    options = tuple(text.replace("CACHE", str(tmp_path / "cache")) for text in options)
    weights, events = train(prepared, tmp_path / "some", f"data.filter={FILTER}", *options)
    expected, expected_events = train(filtered, tmp_path / "all", *options)
    assert weights.keys() == expected.keys()
    for name, value in weights.items():
        assert torch.equal(value, expected[name]), name
    assert len(events) == len(expected_events) > 0
    for one, other in zip(events, expected_events, strict=True):
        assert one.metrics == other.metrics
    whole, _ = train(prepared, tmp_path / "whole", *options)
    assert any(not torch.equal(value, whole[name]) for name, value in weights.items())


def test_a_filter_is_refused_where_the_files_are_checked(prepared: Path) -> None:
    for text, place in (("C5 > 3 and nothing > 2", 12), ("C5 == 'a'", 1), ("C5 < 0", None)):
        spec = make_spec(prepared, f"data.filter={text}", "data.valid=null")
        with pytest.raises(SpecError) as error:
            read_inputs(spec)
        assert error.value.where["data.filter"] == text
        assert error.value.where.get("character") == place
    with pytest.raises(SpecError, match=r"data\.filter.*not a condition"):
        make_spec(prepared, "data.filter=C5 >")
