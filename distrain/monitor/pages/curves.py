"""Figures over training: rows per second, loss, AUC."""

from collections.abc import Callable

from bokeh.models import ColumnDataSource, GlyphRenderer, Legend, LegendItem, NumeralTickFormatter
from bokeh.palettes import Category10, Turbo256
from bokeh.plotting import figure

from distrain.monitor.pages.changes import extend
from distrain.monitor.pages.columns import Series, rank_series, train_series, valid_series
from distrain.monitor.pages.panels import BLUE, ORANGE, Panel, draw, show_over, source_of
from distrain.monitor.pages.watching import View

_NAMED_RANKS = 8
"""More lines than this are told apart by the pointer, not by a legend."""

_TRAIN = ("step", "elapsed_s", "rows_total", "rows_per_s", "loss", "auc", "auc_low", "auc_high")
_VALID = ("step", "elapsed_s", "rows_total", "loss", "auc", "auc_low", "auc_high")


def rows_per_second() -> Panel:
    """Rows per second of all ranks together, over time."""
    source = source_of(*_TRAIN)
    drawn = draw(
        "Rows per second, all ranks",
        "rows/s",
        tooltips=[("rows/s", "@rows_per_s{0,0}"), ("step", "@step{0,0}")],
    )
    drawn.line("elapsed_s", "rows_per_s", source=source, color=BLUE, line_width=2)
    _from_zero(drawn)
    show_over(drawn, "elapsed_s")

    def show(view: View) -> None:
        extend(source, train_series(view.metrics.get("train", {})), view.anew)

    return Panel("rows-per-second", drawn, show)


def rows_per_second_by_rank() -> Panel:
    """Rows per second of each rank, over time."""
    drawn = draw(
        "Rows per second, by rank",
        "rows/s",
        tooltips=[("", "$name"), ("rows/s", "@rows_per_s{0,0}")],
    )
    legend = Legend(items=[], label_text_font_size="8pt", spacing=0, padding=4)
    drawn.add_layout(legend, "right")
    _from_zero(drawn)
    show_over(drawn, "elapsed_s")
    lines = RankLines(drawn, legend)

    def show(view: View) -> None:
        lines.show(rank_series(view.metrics.get("ranks", {})), view.anew)

    return Panel("rows-per-second-by-rank", drawn, show)


class RankLines:
    """A line per rank. Lines are kept for ranks to come, so their number stays bounded."""

    def __init__(self, drawn: figure, legend: Legend):
        self._figure, self._legend = drawn, legend
        self._lines: list[GlyphRenderer] = []
        self._line_of: dict[str, GlyphRenderer] = {}

    def show(self, ranks: dict[str, Series], anew: bool) -> None:
        """Append new points of these ranks; or draw these ranks and no others."""
        if anew:
            gone = [line for line in self._lines if len(line.data_source.data["elapsed_s"])]
            self._line_of = {}
            self._assign(list(ranks))
            kept = list(self._line_of.values())
            for line in gone:
                if line not in kept:
                    extend(line.data_source, _no_points(), anew=True)
        new = [rank for rank in ranks if rank not in self._line_of]
        self._assign(new)
        for rank, points in ranks.items():
            extend(self._line_of[rank].data_source, points, anew or rank in new)

    def _assign(self, ranks: list[str]) -> None:
        for rank in ranks:
            number = len(self._line_of)
            if number == len(self._lines):
                self._lines.append(self._new_line(number))
            line = self._lines[number]
            line.name = rank
            self._line_of[rank] = line
        shown = self._line_of if len(self._line_of) <= _NAMED_RANKS else {}
        items = list(shown.items())
        if [label for label, _ in items] != [item.label.value for item in self._legend.items]:
            self._legend.items = [LegendItem(label=n, renderers=[line]) for n, line in items]
            self._legend.visible = bool(items)

    def _new_line(self, number: int) -> GlyphRenderer:
        named = number < _NAMED_RANKS
        color = Category10[10][number] if named else Turbo256[(number * 37) % 256]
        source = source_of("elapsed_s", "rows_per_s")
        return self._figure.line("elapsed_s", "rows_per_s", source=source, color=color)


def loss() -> Panel:
    """Loss of training and validation."""
    train, valid = source_of(*_TRAIN), source_of(*_VALID)
    drawn = draw("Loss", "log loss, nats", tooltips=[("loss", "@loss{0.0000}"), *_WHERE])
    lines = _train_and_valid(drawn, train, valid, "loss")
    return Panel("loss", drawn, _shower(train, valid), _over(drawn, lines))


def auc() -> Panel:
    """AUC of training and validation, with the band that the true one lies in."""
    train, valid = source_of(*_TRAIN), source_of(*_VALID)
    drawn = draw(
        "AUC and its bound",
        "AUC",
        tooltips=[
            ("AUC", "@auc{0.0000}"),
            ("between", "@auc_low{0.0000} and @auc_high{0.0000}"),
            *_WHERE,
        ],
    )
    bands = [
        drawn.varea("rows_total", "auc_low", "auc_high", source=source, color=color, alpha=0.25)
        for source, color in ((train, BLUE), (valid, ORANGE))
    ]
    lines = _train_and_valid(drawn, train, valid, "auc")
    return Panel("auc", drawn, _shower(train, valid), _over(drawn, [*bands, *lines]))


_WHERE = [("step", "@step{0,0}"), ("rows", "@rows_total{0,0}"), ("time", "@elapsed_s{00:00:00}")]


def _train_and_valid(
    drawn: figure, train: ColumnDataSource, valid: ColumnDataSource, y: str
) -> list[GlyphRenderer]:
    options = {"x": "rows_total", "y": y}
    lines = [
        drawn.line(**options, source=train, color=BLUE, legend_label="training"),
        drawn.line(**options, source=valid, color=ORANGE, legend_label="validation"),
        drawn.scatter(**options, source=valid, color=ORANGE, size=6, legend_label="validation"),
    ]
    drawn.legend.location = "bottom_right" if y == "auc" else "top_right"
    drawn.legend.background_fill_alpha = 0.5
    drawn.legend.label_text_font_size = "8pt"
    drawn.hover.renderers = lines[:1] + lines[2:]
    show_over(drawn, "rows_total")
    return lines


def _over(drawn: figure, lines: list[GlyphRenderer]) -> Callable[[str], None]:
    def set_x(x: str) -> None:
        for line in lines:
            line.glyph.x = x
        show_over(drawn, x)

    return set_x


def _shower(train: ColumnDataSource, valid: ColumnDataSource) -> Callable[[View], None]:
    def show(view: View) -> None:
        extend(train, train_series(view.metrics.get("train", {})), view.anew)
        extend(valid, valid_series(view.metrics.get("valid", {})), view.anew)

    return show


def _no_points() -> Series:
    return next(iter(rank_series({"0": {}}).values()))


def _from_zero(drawn: figure) -> None:
    drawn.y_range.start = 0
    drawn.yaxis.formatter = NumeralTickFormatter(format="0.[0]a")
