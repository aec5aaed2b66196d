"""The figures of ranks beside their peers: which there are, and what they must be."""

from benchmarks.step_bench.cases import OURS, TORCHREC_NAMES, comparisons
from benchmarks.step_bench.goals import figures
from benchmarks.step_bench.turns import Measured


def test_each_number_of_ranks_and_each_link_has_a_figure_for_each_peer():
    """As if distrain took 0.1 s a step, row-wise TorchRec 0.05, and all others 0.3."""
    measured = []
    for comparison in comparisons("cpu", 4, quick=True, mbits=(0, 100)):
        if not comparison.mbits:
            continue
        for mbit in comparison.mbits:
            for entry in comparison.entries:
                seconds = 0.1 if entry.name == f"{OURS}, auto" else 0.3
                if entry.name == TORCHREC_NAMES["row_wise"]:
                    seconds = 0.05
                measured.append(Measured(comparison.at(mbit), entry, 8192, [seconds] * 3))
    found = {name: f for name, f in figures(measured, cuda=False).items() if "_ranks" in name}
    assert set(found) == {
        f"{ranks}_ranks{links}_x_{peer}"
        for ranks in (2, 4)
        for links in ("", "_100_mbit")
        for peer in ("ddp", "torchrec_table_wise", "torchrec_row_wise")
    }
    for name, figure in found.items():
        behind = name.endswith("row_wise")
        assert round(figure.value, 3) == (0.5 if behind else 3.0)
        assert figure.met is not behind
    assert (found["2_ranks_x_ddp"].goal, found["4_ranks_x_ddp"].goal) == (">= 1.7", ">= 1")
