"""Line charts over training: rows per second, loss, AUC, learning rate."""

from collections.abc import Callable

from bokeh.models import GlyphRenderer, Legend, LegendItem, Range1d
from bokeh.palettes import Category10, Turbo256
from bokeh.plotting import figure

from distrain.runs.records.series import curve_limits
from distrain.runs.report import colours
from distrain.scheduler.dashboard.figure_data import (
    Series,
    rank_series,
    score_title,
    train_series,
    valid_series,
)
from distrain.scheduler.dashboard.panel import (
    Panel,
    compact_numbers,
    draw,
    extend,
    legend_above,
    show_over,
    source_of,
)
from distrain.scheduler.dashboard.watching import View

_NAMED_RANKS = 8  # maximum lines in a legend; with more, names appear only under the pointer

_NUMBERS = ("loss", "auc", "auc_bound", "auc_low", "auc_high")
_VALID = ("step", "elapsed_s", "rows_total", *_NUMBERS)
_TRAIN = (*_VALID, "rows_per_s", "lr")
_WHERE = [("step", "@step{0,0}"), ("rows", "@rows_total{0,0}"), ("time", "@elapsed_s{00:00:00}")]


class Curves:
    """The Bokeh data sources of the curves of two jobs: the shown one, and one to compare with."""

    def __init__(self) -> None:
        self.train, self.valid = source_of(*_TRAIN), source_of(*_VALID)
        self.other_train, self.other_valid = source_of(*_TRAIN), source_of(*_VALID)
        self._of_other: list[LegendItem] = []

    def show(self, view: View) -> None:
        """Add a view's new points to the curves.

        The legend has entries for the second job only if there is one.
        """
        extend(self.train, train_series(view.metrics.get("train", {})), view.replaces)
        extend(self.valid, valid_series(view.metrics.get("valid", {})), view.replaces)
        other = view.other or View((), None, {}, replaces=len(self.other_train.data["step"]) > 0)
        extend(self.other_train, train_series(other.metrics.get("train", {})), other.replaces)
        extend(self.other_valid, valid_series(other.metrics.get("valid", {})), other.replaces)
        for item in self._of_other:
            item.visible = view.other is not None

    def draw(self, drawn: figure, y: str, x: str = "rows_total") -> list[GlyphRenderer]:
        """Draw column `y` over column `x` in the figure `drawn`.

        Return the lines and their markers. The curves are those of training and, if `y` is one of
        its columns, of validation, for both jobs.
        """
        legend = legend_above(drawn)
        lines: list[GlyphRenderer] = []
        of_train = "dashed" if y in self.valid.data else "solid"
        for source, color, dash, label in (
            (self.train, colours.TRAIN, of_train, "training"),
            (self.valid, colours.VALID, "solid", "validation"),
            (self.other_train, colours.GREY, "dashed", "other training"),
            (self.other_valid, colours.GREY, "solid", "other validation"),
        ):
            if y in source.data:
                line = drawn.line(x, y, source=source, color=color, line_dash=dash, line_width=1.5)
                glyphs = [line]
                if "rows_per_s" not in source.data:  # validation: few points
                    glyphs.append(drawn.scatter(x, y, source=source, color=color, size=6))
                item = LegendItem(label=label, renderers=glyphs)
                legend.items.append(item)
                lines += glyphs
                if color == colours.GREY:
                    item.visible = False
                    self._of_other.append(item)
        drawn.hover.renderers = lines
        show_over(drawn, x)
        return lines

    def fit(self, drawn: figure, y: str, title: str) -> None:
        """Set a figure's y range to all points of column `y` except outliers at the start.

        If there are such outliers at the start of training, their number is added to the title.
        Does nothing without points.
        """
        trains = [list(source.data[y]) for source in (self.train, self.other_train)]
        whole = [*self.valid.data[y], *self.other_valid.data[y]]
        limits = curve_limits(trains, whole)
        if limits is None:
            return
        beyond = sum(not limits[0] <= value <= limits[1] for values in trains for value in values)
        text = f"{title} ({beyond} at the start outside)" if beyond else title
        if drawn.title.text != text:
            drawn.title.text = text
        span = drawn.y_range
        if (span.start, span.end) != limits:
            span.start, span.end = limits
            span.reset_start, span.reset_end = limits


def rows_per_second() -> Panel:
    curves = Curves()
    tooltips = [("rows/s", "@rows_per_s{0,0}"), ("step", "@step{0,0}")]
    drawn = draw("Rows per second, all ranks", "rows/s", tooltips=tooltips)
    curves.draw(drawn, "rows_per_s", "elapsed_s")
    _from_zero(drawn)
    return Panel("rows-per-second", drawn, curves.show)


def learning_rate() -> Panel:
    curves = Curves()
    tooltips = [("learning rate", "@lr{0.0000000}"), *_WHERE]
    drawn = draw("Learning rate", "learning rate", tooltips=tooltips)
    lines = curves.draw(drawn, "lr")
    drawn.y_range.start = 0
    drawn.yaxis.formatter = compact_numbers()
    return Panel("learning-rate", drawn, curves.show, _over(drawn, lines))


def rows_per_second_by_rank() -> Panel:
    tooltips = [("", "$name"), ("rows/s", "@rows_per_s{0,0}")]
    drawn = draw("Rows per second, by rank", "rows/s", tooltips=tooltips)
    legend = Legend(items=[], label_text_font_size="8pt", spacing=0, padding=4)
    drawn.add_layout(legend, "right")
    _from_zero(drawn)
    show_over(drawn, "elapsed_s")
    lines = RankLines(drawn, legend)

    def show(view: View) -> None:
        lines.show(rank_series(view.metrics.get("ranks", {})), view.replaces)

    return Panel("rows-per-second-by-rank", drawn, show)


class RankLines:
    """The lines of ranks in a figure, one for each rank.

    When another job is shown, its ranks reuse the lines, so that the number of lines is bounded.
    """

    def __init__(self, drawn: figure, legend: Legend):
        self._figure, self._legend = drawn, legend
        self._lines: list[GlyphRenderer] = []
        self._line_of: dict[str, GlyphRenderer] = {}

    def show(self, ranks: dict[str, Series], replaces: bool) -> None:
        """Append points to the ranks' lines; with `replaces`, remove all other points and ranks."""
        if replaces:
            gone = [line for line in self._lines if len(line.data_source.data["elapsed_s"])]
            self._line_of = {}
            self._assign(list(ranks))
            kept = list(self._line_of.values())
            (no_points,) = rank_series({"0": {}}).values()
            for line in gone:
                if line not in kept:
                    extend(line.data_source, no_points, replaces=True)
        new = [rank for rank in ranks if rank not in self._line_of]
        self._assign(new)
        for rank, points in ranks.items():
            extend(self._line_of[rank].data_source, points, replaces or rank in new)

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
    curves = Curves()
    tooltips = [("loss", "@loss{0.0000}"), *_WHERE]
    drawn = draw("Loss", "log loss, nats", tooltips=tooltips, y_range=Range1d())
    lines = curves.draw(drawn, "loss")

    def show(view: View) -> None:
        curves.show(view)
        curves.fit(drawn, "loss", "Loss")

    return Panel("loss", drawn, show, _over(drawn, lines))


def auc() -> Panel:
    """Return the panel of the AUC, with bands for its error due to binned scores.

    For a job without an AUC, it shows the metric that `score_name` returns.
    """
    curves = Curves()
    tooltips = [("AUC", "@auc{0.0000}"), ("off by bins", "at most @auc_bound{0.000000}"), *_WHERE]
    drawn = draw(score_title({}), "AUC", tooltips=tooltips)
    bands = [
        drawn.varea("rows_total", "auc_low", "auc_high", source=source, color=color, alpha=0.25)
        for source, color in ((curves.train, colours.TRAIN), (curves.valid, colours.VALID))
    ]
    lines = curves.draw(drawn, "auc")

    def show(view: View) -> None:
        curves.show(view)
        title = score_title(view.metrics.get("train", {}))
        if drawn.title.text != title:
            drawn.title.text = title
            drawn.yaxis.axis_label = "AUC" if title.startswith("AUC ") else title

    return Panel("auc", drawn, show, _over(drawn, [*bands, *lines]))


def _over(drawn: figure, lines: list[GlyphRenderer]) -> Callable[[str], None]:
    def set_x(x: str) -> None:
        for line in lines:
            line.glyph.x = x
        show_over(drawn, x)

    return set_x


def _from_zero(drawn: figure) -> None:
    drawn.y_range.start = 0
    drawn.yaxis.formatter = compact_numbers()
