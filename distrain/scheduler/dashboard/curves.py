"""Line charts over training: rows per second, loss, AUC, learning rate."""

from collections.abc import Callable

from bokeh.models import GlyphRenderer, LegendItem, Range1d
from bokeh.plotting import figure

from distrain.runs.records.series import curve_limits
from distrain.runs.report import colours
from distrain.scheduler.dashboard.figure_data import score_title, train_series, valid_series
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
