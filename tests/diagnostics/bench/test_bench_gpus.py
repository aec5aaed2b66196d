"""GPUs in a bench: what is measured, on CPU tensors; what NVML says, by one of ours; verdicts."""

from dataclasses import replace
from typing import Any

import torch
from wording import Wording

from distrain.diagnostics.bench.measuring.gpus import facts_of, product_rates, rates_of
from distrain.diagnostics.bench.results import Bench, Measure
from distrain.diagnostics.bench.summary import summary_lines
from distrain.diagnostics.bench.thresholds import parse_thresholds
from distrain.diagnostics.bench.verdict import judge

WORDS = {"gpu_bytes": 4096, "product_rows": 16, "product_s": 0.01, "repeats": 3}
THRESHOLDS = parse_thresholds("machine: t\nleast: {gpu.triad: 1}\n")


class Nvml:
    """As much of `pynvml` as is asked; queries that it lacks are not supported."""

    NVMLError = RuntimeError
    NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_VOLATILE_ECC = 1, 0

    def __init__(self, **answers: Any) -> None:
        self.answers = answers

    def __getattr__(self, name: str) -> Any:
        def ask(*_: Any) -> Any:
            if name not in self.answers:
                raise RuntimeError("Not Supported")
            return self.answers[name]

        return ask


def told(**answers: Any) -> dict[str, Any]:
    known = {"nvmlDeviceGetHandleByUUID": 7, "nvmlSystemGetDriverVersion": b"580.65"}
    named = {f"nvmlDeviceGet{name}": answer for name, answer in answers.items()}
    return {"name": "H100", **facts_of(Nvml(**known, **named), "GPU-1")}


def accepted(*nodes: dict[str, Any], measures: tuple[Measure, ...] = ()) -> list[str]:
    triad = (Measure("gpu.triad", "node a gpu 0", "bytes/s", (2e12,)), *measures)
    bench = Bench("quick", "cuda", inventory=nodes, measures=triad)
    assert judge(bench).passed  # not asked for an acceptance
    verdict = judge(bench, THRESHOLDS)
    troubles = [one.text for one in verdict.findings["troubles"]]
    assert verdict.passed is not bool(troubles)
    lines = summary_lines(bench, verdict)
    assert lines[0].startswith("PASS" if verdict.passed else f"FAIL: {lines[1]}")
    return troubles


def test_every_rate_is_measured_as_often_as_asked() -> None:
    rates = rates_of(torch.device("cpu"), WORDS)
    assert rates.keys() == {"gpu.copy", "gpu.triad", "gpu.from_host", "gpu.to_host"}
    for values in (*rates.values(), product_rates(torch.device("cpu"), WORDS)):
        assert len(values) == 3
        assert all(value > 0 for value in values)


def test_what_nvml_does_not_say_is_not_known_and_no_trouble() -> None:
    facts = told()
    assert (facts["driver"], facts["ecc"], facts["uncorrected_errors"]) == ("580.65", None, None)
    assert accepted({"node": "a", "gpus": ["H100"], "gpu_facts": [facts]}) == []
    well = told(EccMode=[1, 1], TotalEccErrors=0, RemappedRows=(1, 0, 0, 0), CurrPcieLinkWidth=16,
                MaxPcieLinkWidth=16, CurrentClocksThrottleReasons=0x4)  # fmt: skip
    assert accepted({"node": "a", "gpus": ["H100"], "gpu_facts": [well]}) == []


TROUBLES: list[dict[str, Any]] = [
    {"TotalEccErrors": 3},
    {"RemappedRows": (0, 1, 1, 0)},
    {"RemappedRows": (0, 1, 1, 1)},
    {"CurrentClocksThrottleReasons": 0x48},
    {"CurrPcieLinkWidth": 8, "MaxPcieLinkWidth": 16},
    {"CurrPcieLinkGeneration": 3, "MaxPcieLinkGeneration": 5},
]


def test_what_fails_an_acceptance(wording: Wording) -> None:
    for answers in TROUBLES:
        [line] = accepted({"node": "a", "gpus": ["H100"], "gpu_facts": [told(**answers)]})
        assert line.startswith("node a gpu 0: "), answers
        wording(line)
    one = {"node": "a", "gpus": ["H100"] * 2, "gpu_facts": [told(EccMode=[1, 1])]}
    other = {**one, "node": "b", "gpus": ["H100"]}
    other["gpu_facts"] = [{**told(EccMode=[0, 0]), "driver": "570.1"}]
    differing = accepted(one, other)
    assert len(differing) == 3
    wording("\n".join(differing))
    steady = Measure("gpu.product", "node a gpu 0", "flop/s", (7e14, 7.1e14, 7e14, 6.9e14))
    assert accepted(measures=(steady,)) == []
    [slower] = accepted(measures=(replace(steady, values=(7e14, 7e14, 5.6e14, 5.6e14)),))
    wording(slower)


def test_two_threads_that_load_less_than_one_are_remarked_and_fail_nothing() -> None:
    rates = {"loader.threads_1": 1e5, "loader.threads_2": 8e4}
    loads = [Measure(name, "node a", "rows/s", (rate,)) for name, rate in rates.items()]
    bench = Bench("quick", "cpu", measures=tuple(loads))
    verdict = judge(bench, parse_thresholds("machine: t\nleast: {loader.threads_1: 1}\n"))
    assert verdict.passed
    assert "two threads of a loader are slower than one" in summary_lines(bench, verdict)[1]
