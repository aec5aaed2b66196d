"""Writes the report in Markdown."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from benchmarks.gpu_bench.figures import NOT_MEASURED, Figure, last_line
from benchmarks.gpu_bench.junit import counts
from benchmarks.gpu_bench.outcome import (
    RAN,
    SKIPPED,
    benchmark_figures,
    conclusion,
    results_of,
)
from benchmarks.gpu_bench.stages import AGAIN, BENCHMARK, TESTS

Document = Mapping[str, Any]
REHEARSAL = "**A rehearsal on a CPU: no figure of a GPU is in here, and no goal is judged.**"
UNFINISHED = "**Not finished: what is below is what there was so far.**"
MOST_LINES = 150


def markdown(document: Document) -> str:
    """Return the whole report."""
    parts = [
        heading(document),
        in_short(document),
        machine(document),
        rates(document),
        tests(document),
        alone(document),
        *benchmarks(document),
        left_out(document),
        pictures(document),
        packages(document),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def heading(document: Document) -> str:
    """Return the title, and whether the run is a rehearsal or unfinished."""
    devices = document["torch"]["devices"]
    where = devices[0]["name"] if devices else document["host"]["cpu"]
    lines = [f"# distrain on {where}", ""]
    if document["rehearsal"]:
        lines += [REHEARSAL, ""]
    if not document["finished"]:
        lines += [UNFINISHED, ""]
    lines += [
        f"{document['began']}, `{document['command']}`, {document['took_s']:.0f} s of "
        f"{document['minutes']:g} minutes.",
    ]
    return "\n".join(lines)


def in_short(document: Document) -> str:
    """Return the summary: tests, goals, failed and skipped stages."""
    told = conclusion(document)
    lines = ["## In short", "", f"- Tests: {counted(told['tests']) or 'none ran'}."]
    for name, figures in benchmark_figures(document).items():
        words = [figure.status for figure in figures if figure.status]
        if not words:
            continue
        lines.append(f"- Goals of `{name}`: {counted({w: words.count(w) for w in sorted(words)})}.")
    if told["failed_stages"]:
        lines.append(f"- Failed or stopped: {', '.join(told['failed_stages'])}.")
    if told["skipped_stages"]:
        lines.append(f"- Not begun: {', '.join(told['skipped_stages'])}.")
    return "\n".join(lines)


def counted(numbers: Mapping[str, int]) -> str:
    """Return counts in words: `3 passed, 1 failed`."""
    return ", ".join(f"{number} {word}" for word, number in numbers.items())


def machine(document: Document) -> str:
    """Return the section on GPU, driver, host and checkout."""
    host, torch = document["host"], document["torch"]
    rows = [
        ("CPU", f"{host['cpu']}, {host['cores']} cores"),
        ("memory", f"{gib(host['memory_bytes'])}, {gib(host['memory_free_bytes'])} free"),
        ("system", host["system"]),
        ("torch's CUDA", torch["cuda"] or "none"),
        ("cuDNN", torch.get("cudnn") or "none"),
        ("commit", host["commit"] or "unknown"),
        ("kernel that fills batches", host["loader_kernel"]),
        ("kernels of tables on the CPU", host["tables_kernels"]),
    ]
    for number, gpu in enumerate(torch["devices"]):
        words = (
            f"{gpu['name']}, {gpu['multiprocessors']} multiprocessors, compute capability "
            f"{gpu['capability']}, {gib(gpu['memory_bytes'])}, {gib(gpu['memory_free_bytes'])} free"
        )
        rows.append((f"GPU {number}", words))
    rows += [
        ("nvidia-smi", ", ".join(f"{name} {value}" for name, value in told.items()))
        for told in document["driver"]["nvidia_smi"]
    ]
    if document["driver"]["module"]:
        rows.append(("driver", document["driver"]["module"]))
    return "## Machine\n\n" + table(("", ""), rows)


def rates(document: Document) -> str:
    """Return the section on the machine's measured rates."""
    told = next((stage.get("rates") for stage in document["stages"] if stage.get("rates")), None)
    if told is None:
        return ""
    where = "GPU" if told["device"] == "cuda" else "CPU"
    rows = [
        (
            f"copy within the memory of the {where}, read and written",
            f"{told['copy_bytes_per_s'] / 1e9:,.1f} GB/s",
            f"blocks of {told['copy_bytes'] / 2**20:.0f} MiB",
        )
    ]
    for name, words in (("to", "host to GPU"), ("from", "GPU to host")):
        if (rate := told.get(f"{name}_device_bytes_per_s")) is not None:
            blocks = f"page-locked, blocks of {told['host_bytes'] / 2**20:.0f} MiB"
            rows.append((words, f"{rate / 1e9:,.1f} GB/s", blocks))
    n = told["rows"]
    for name, rate in told["flops_per_s"].items():
        size = f"{n} x {n} x {n}, random numbers"
        rows.append((f"matrices, {name}", f"{rate / 1e12:,.2f} TFLOP/s", size))
    for name, took_s in told.get("write_places_s", {}).items():
        size = f"{told['places']:,} numbers to places of their own"
        rows.append((f"index_put, {name}", f"{told['places'] / took_s / 1e9:,.2f} G/s", size))
    if recording := told.get("recording"):
        given = f"gives {recording['given_back_bytes'] / 2**20:.0f} MiB of cached memory back"
        rows.append(("recording a graph of one operation", f"{recording['took_s']:.4f} s", given))
    text = f"Medians of {told['repeats']} timings, of the recording one."
    return f"## What the machine can do\n\n{table(('', 'rate', ''), rows)}\n\n{text}"


def tests(document: Document) -> str:
    """Return the section on all tests."""
    results = results_of(document, TESTS)
    if not results:
        return ""
    rows = [
        (f"`{t.name}`", t.outcome, "" if t.took_s is None else f"{t.took_s:.2f}", first(t.reason))
        for t in results
    ]
    parts = [f"## Tests\n\n{counted(counts(results))}."]
    parts += [
        f"`{test.name}`, {test.outcome}:\n\n{fenced(test.reason)}"
        for test in results
        if test.outcome in ("failed", "error")
    ]
    parts.append(table(("test", "outcome", "s", "reason"), rows))
    return "\n\n".join(parts)


def alone(document: Document) -> str:
    """Return the section on failed tests that ran again, each in its own process."""
    results = results_of(document, AGAIN)
    if not results:
        return ""
    text = "Each in a fresh process, and without turning warnings into errors."
    rows = [(f"`{t.name}`", t.outcome, first(t.reason)) for t in results]
    return f"## Failed tests, each alone\n\n{text}\n\n{table(('test', 'outcome', ''), rows)}"


def benchmarks(document: Document) -> Iterable[str]:
    """Yield a section per benchmark: figures and goals, then the output of each part."""
    own = [stage for stage in document["stages"] if stage["kind"] == BENCHMARK]
    figures = benchmark_figures(document)
    for name in dict.fromkeys(stage["part_of"] for stage in own):
        parts = [f"## `{name}`"]
        if name in figures:
            parts.append(table(("figure", "value", "goal", ""), map(figure_row, figures[name])))
        parts += [printed(s) for s in own if s["part_of"] == name and s["outcome"] != SKIPPED]
        yield "\n\n".join(parts)


def figure_row(figure: Figure) -> tuple[str, ...]:
    """Return a figure's row of the table."""
    missing = NOT_MEASURED if figure.goal is None else ""
    value = missing if figure.value is None else number(figure.value)
    status = f"**{figure.status}**" if figure.status == "missed" else figure.status
    return (figure.name, value, figure.goal or "", status)


def printed(stage: Mapping[str, Any]) -> str:
    """Return the output of a part, and how it ended."""
    ending = "" if stage["outcome"] == RAN else f" **{stage['outcome']}: {stage['reason']}**"
    lines = stage["stdout"].rstrip().splitlines()
    if last_line(stage["stdout"]) is not None:
        lines = lines[:-1]
    if stage["outcome"] != RAN:
        lines += ["--- stderr", *stage["stderr"].rstrip().splitlines()[-40:]]
    text = fenced("\n".join(lines[-MOST_LINES:]))
    return f"{stage['name']}: `{stage['command']}`, {stage['took_s']:.0f} s.{ending}\n\n{text}"


def left_out(document: Document) -> str:
    """Return the section on what did not run, and why."""
    rows = [
        (stage["name"], stage["reason"])
        for stage in document["stages"]
        if stage["outcome"] == SKIPPED
    ]
    rows += [(what, f"`{module}` is not installed") for module, what in document["missing"].items()]
    return f"## Left out\n\n{table(('what', 'why'), rows)}" if rows else ""


def pictures(document: Document) -> str:
    """Return the section of plots and files that benchmarks wrote."""
    names = sorted({name for s in document["stages"] for name in s.get("files", ())})
    names = [*document["pictures"], *(n for n in names if n not in document["pictures"])]
    lines = [f"![{n}]({n})" if n.endswith(".png") else f"[{n}]({n})" for n in names]
    lines += [f"{name} could not be drawn: {why}" for name, why in document["undrawn"].items()]
    return "## Pictures and files\n\n" + "\n\n".join(lines) if lines else ""


def packages(document: Document) -> str:
    """Return the section on versions."""
    rows = [(name, version or "not installed") for name, version in document["versions"].items()]
    return "## Versions\n\n" + table(("package", "version"), rows)


def table(heads: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return a Markdown table."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(map(cell, line)) + " |" for line in lines)


def cell(value: Any) -> str:
    """Return the text of a cell, with `|` and line breaks escaped."""
    return str(value).replace("|", "\\|").replace("\n", " ")


def fenced(text: str) -> str:
    """Return a text as a fenced code block; fences within it are replaced."""
    return "````text\n" + text.replace("````", "'''") + "\n````"


def first(text: str) -> str:
    """Return the first line of a reason."""
    return text.strip().splitlines()[0][:200] if text.strip() else ""


def gib(size: int) -> str:
    """Return a size in GiB."""
    return f"{size / 2**30:.1f} GiB"


def number(value: Any) -> str:
    """Return a figure with four significant digits."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return f"{value:,.0f}" if abs(value) >= 1e4 else f"{value:.4g}"
