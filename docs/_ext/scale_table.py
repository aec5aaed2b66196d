"""The tables of docs/scaling.md: predicted steps on 8, 32 and 128 GPUs, and where numbers are from.

python docs/_ext/scale_table.py [--machine h100-node]    prints the steps
python docs/_ext/scale_table.py --write                  writes docs/scaling.md anew

The steps are those of the MLP of `distrain init criteo-mlp`, 65,536 rows a rank, with tables of the
sizes that the notebooks' 45.9M distinct values give. A plan reads footers and no rows, so the rows
that it is given are zeros.
"""

import argparse
import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from markdown_pieces import table

PAGE = Path(__file__).resolve().parents[1] / "scaling.md"
MACHINES = ("h100-node", "h200-node")
RANKS, WIDTHS, RANK_ROWS = (8, 32, 128), (16, 128), 65_536
KINDS = ("published", "demanded", "measured", "assumed")
_BETWEEN = r"(<!-- {name}: [^\n]*-->\n).*?(<!-- end of {name} -->)"
_URL = re.compile(r"https://\S+?(?=[,;]? |$|[,;])")


def steps(machine_name: str, ranks: Sequence[int] = RANKS, widths: Sequence[int] = WIDTHS) -> str:
    """A row for each number of ranks and width, and one for replicated tables on most ranks."""
    from distrain.train.data.inputs import check_inputs
    from distrain.train.planning.machine_file import load_machine
    from distrain.train.planning.scale_plan import plan_scale

    machine = load_machine(machine_name)
    cases = [(width, number, "auto") for width in widths for number in ranks]
    cases.append((widths[-1], ranks[-1], "replicated"))
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        write_zeros(Path(folder))
        for width, number, placement in cases:
            spec = job(folder, width, number, placement)
            plan = plan_scale(spec, check_inputs(spec), machine)
            rows.append(_row(plan, width, placement))
    header = (
        "width", "ranks", "step, ms", "compute", "exchange", "all-reduce", "efficiency",
        "binds first", "then", "to other nodes, MB", "memory of a GPU, GB",
    )  # fmt: skip
    return table(header, rows)


def _row(plan: Any, width: int, placement: str) -> list[str]:
    scale, (first, then, *_) = plan.scale, plan.scale.binds
    parts = (scale.parts_s[part] for part in ("compute", "exchange", "all_reduce"))
    return [
        f"{width}{', replicated' if placement == 'replicated' else ''}",
        str(scale.num_ranks),
        f"{1e3 * scale.step_s:.2f}",
        *(f"{1e3 * part:.2f}" for part in parts),
        f"{scale.efficiency:.2f}",
        first.name,
        f"{then.name}, {then.headroom:.1f}x",
        f"{scale.network_bytes / 1e6:.0f}",
        f"{plan.peak.device_bytes / 1e9:.1f}" + ("" if plan.fits else ", does not fit"),
    ]


def write_zeros(folder: Path) -> None:
    """`train` and a schema of the notebooks' sizes."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    from distrain.prep.synthetic.draw import CATEGORIES
    from distrain.schema import criteo_schema

    schema = criteo_schema({column.name: column.cardinality(1.0) for column in CATEGORIES})
    schema.save(folder / "schema.pbtxt")
    (folder / "train").mkdir()
    rows = pa.table({column.name: np.zeros(RANK_ROWS, column.dtype) for column in schema.columns})
    pq.write_table(rows, folder / "train" / "part-0.parquet", row_group_size=4096)


def job(folder: str, width: int, ranks: int, placement: str) -> Any:
    """The preset, with as many rows for each rank."""
    from distrain.jobs.spec import parse_spec
    from distrain.jobs.spec.presets import criteo_mlp

    document = criteo_mlp(folder).model_dump(mode="json")
    document["data"]["valid"] = []
    document["model"]["embedding_dim"] = width
    document["train"] |= {"global_batch_size": RANK_ROWS * ranks, "lanes": "auto"}
    document["resources"]["num_ranks"] = ranks
    document["embeddings"]["placement"] = placement
    return parse_spec(document)


def numbers() -> str:
    """A row for each field: the machines' values, and where they are from."""
    from distrain.train.planning.machine_file import load_machine

    machines = [load_machine(name) for name in MACHINES]
    rows = []
    for field in machines[0].sources:
        values = [f"{getattr(machine, field):g}" for machine in machines]
        sources = dict.fromkeys(machine.sources[field] for machine in machines)
        rows.append([f"`{field}`", *values, "; ".join(map(_linked, sources))])
    return table(("field", *MACHINES, "from"), rows)


def _linked(source: str) -> str:
    kind, said = source.split(": ", 1)
    assert kind in KINDS, source
    said = _URL.sub(lambda found: f"[page]({found[0]})", said)
    return f"**{kind}**: {said}"


def made_anew(page: str, pieces: dict[str, str]) -> str:
    """The page with what stands between the markers of each piece replaced."""
    for name, text in pieces.items():
        before, start, end, after = re.split(_BETWEEN.format(name=name), page, flags=re.DOTALL)
        page = f"{before}{start}\n{text}\n\n{end}{after}"
    return page


def main(arguments: Sequence[str]) -> None:
    """Print the steps, and write the page if asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--machine", default=MACHINES[0], help="one that is given, or a file")
    parser.add_argument("--write", action="store_true", help="write docs/scaling.md anew")
    options = parser.parse_args(arguments)
    made = steps(options.machine)
    print(made)
    if options.write:
        pieces = {"steps": made, "numbers": numbers()}
        PAGE.write_text(made_anew(PAGE.read_text(encoding="utf-8"), pieces), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
