"""The bar chart of the README: distrain beside others, from the results in `benchmarks/results`."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results"

WIDTH = 760
LABELS = 210
"""Where bars begin."""
LONGEST = 400
BAR = 18
LINE = 24
TITLE = 34
MARGIN = 16

# A card in light colours; dark ones where the viewer asks for them. Both are readable everywhere.
STYLE = """
  text { font: 13px system-ui, "Segoe UI", Helvetica, Arial, sans-serif; fill: #24292f; }
  .title { font-weight: 600; }
  .note { font-size: 12px; fill: #57606a; }
  .card { fill: #ffffff; stroke: #d0d7de; }
  .ours { fill: #1f6feb; }
  .other { fill: #afb8c1; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3; }
    .note { fill: #9198a1; }
    .card { fill: #0d1117; stroke: #3d444d; }
    .ours { fill: #4493f8; }
    .other { fill: #656c76; }
  }
"""


@dataclass(frozen=True)
class Group:
    """Bars of one comparison: rows per second by name, distrain first."""

    title: str
    rates: Mapping[str, float]


def groups() -> list[Group]:
    """The comparisons of the chart, in order."""
    loader, step = _result("loader-2-cores"), _result("step-2-cores")
    rows_per_s = loader["result"]["rows_per_s"]
    loaded = {
        "distrain": rows_per_s["distrain, ordinary, 2t"],
        "torch over pyarrow": rows_per_s["torch, iterable"],
        "merlin-dataloader": rows_per_s["merlin"],
    }
    return [
        Group(f"Loader: shuffled batches from parquet ({loader['date']})", loaded),
        _of_step("Embeddings: width 16, SGD, 1 rank", step["embeddings"]),
        _of_step("Training step: MLP, 2 ranks", step["two_ranks"]),
        _of_step("Training step: DeepFM, 1 rank, per CPU second", step["fuxictr"]),
    ]


def svg() -> str:
    """The chart as SVG."""
    pieces, y = [], MARGIN
    for group in groups():
        pieces.append(_text(MARGIN, y + 16, group.title, "title"))
        y += TITLE
        for name, rate in group.rates.items():
            pieces += _bar(y, name, rate, group.rates)
            y += LINE
        y += 8
    hardware = _result("loader-2-cores")["hardware"]
    pieces.append(_text(MARGIN, y + 12, f"Rows per second, more is better. {hardware}.", "note"))
    return _document(pieces, y + 12 + MARGIN)


def _result(name: str) -> dict[str, Any]:
    text = (RESULTS / f"{name}.json").read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text)
    return found


def _of_step(title: str, case: Mapping[str, Any]) -> Group:
    return Group(f"{title} ({case['date']})", case["rows_per_s"])


def _bar(y: int, name: str, rate: float, rates: Mapping[str, float]) -> list[str]:
    width = round(LONGEST * rate / max(rates.values()))
    kind = "ours" if name == "distrain" else "other"
    times = "" if name == "distrain" else f"  (distrain: {rates['distrain'] / rate:.1f}x)"
    return [
        _text(MARGIN, y + 14, name),
        f'<rect class="{kind}" x="{LABELS}" y="{y}" width="{width}" height="{BAR}" rx="3"/>',
        _text(LABELS + width + 8, y + 14, _shown(rate) + times),
    ]


def _shown(rate: float) -> str:
    return f"{rate / 1e6:.2f}M" if rate >= 1e6 else f"{rate / 1e3:.0f}k"


def _text(x: int, y: int, text: str, kind: str = "") -> str:
    named = f' class="{kind}"' if kind else ""
    return f'<text{named} x="{x}" y="{y}">{escape(text)}</text>'


def _document(pieces: list[str], height: int) -> str:
    size = f'width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}"'
    card = f'<rect class="card" x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="8"/>'
    label = "Rows per second of distrain and of other libraries"
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{label}">',
        f"<style>{STYLE}</style>",
        card,
        *pieces,
        "</svg>",
    ]
    return "\n".join(lines) + "\n"
