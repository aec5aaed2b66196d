"""Formats quantities as text for people; an unknown quantity (`None`) is `-`. No I/O.

Memory and file sizes use IEC units (1 KiB is 1,024 bytes). Arguments for times are in seconds.
"""

import shlex
from collections.abc import Mapping, Sequence

UNKNOWN = "-"

Targets = Mapping[str, Mapping[str, float | None]]
MAIN_METRICS = {"auc": "AUC", "rmse": "RMSE", "accuracy": "accuracy"}
"""Display names of metrics. A target's *main metric* is the first of these that has a value."""
_MOST_OF_A_TARGET = 40

NO_AUC = "not defined: all of these rows have the same label, or weight 0"


def join_names(names: Sequence[str], most: int) -> str:
    """Join the first `most` names to a text, which ends with the number of the omitted names.

    >>> join_names(["a", "b", "c"], 2), join_names(["a", "b"], 2)
    ('a, b and 1 more', 'a, b')
    """
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def limit_lines(lines: Sequence[str], most: int, more: str = "and {} more") -> list[str]:
    """Return the first `most` lines, and a line with the number of omitted lines, if any.

    `more` is the format of that line.

    >>> limit_lines(["a", "b", "c"], 2), limit_lines(["a", "b"], 2)
    (['a', 'b', 'and 1 more'], ['a', 'b'])
    """
    return [*lines[:most], *([more.format(len(lines) - most)] if len(lines) > most else [])]


def count(value: float | None) -> str:
    """Format an integer with commas between the thousands; `-` for `None`.

    >>> count(1234567), count(None)
    ('1,234,567', '-')
    """
    return UNKNOWN if value is None else f"{value:,.0f}"


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, whose plural ends in s.

    >>> counted(1, "file"), counted(1200, "file")
    ('1 file', '1,200 files')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def steps(done: int | None, planned: int | None) -> str:
    """Format the number of done steps, and of planned steps if it is known.

    >>> steps(1200, 4000), steps(None, None)
    ('1,200 of 4,000', '0')
    """
    return f"{count(done or 0)} of {count(planned)}" if planned else count(done or 0)


def model_step_text(
    model_step: int | None,
    steps: int | None,
    *,
    stopped_early: bool = False,
    refit_steps: int | None = None,
) -> str:
    """Describe which step the saved model has; `-` if `model_step` is `None`.

    Args:
        model_step: The training step of the saved model; after a refit, that of the best
            validation before it.
        steps: The job's last step.
        stopped_early: Whether training stopped early.
        refit_steps: The number of steps of the refit; `None` without one.

    >>> model_step_text(30, 60, stopped_early=True), model_step_text(60, 60)
    ('30; stopped early at step 60', '60')
    >>> model_step_text(30, 60)
    '30, the best validation of 60 steps'
    >>> model_step_text(30, 94, refit_steps=34)
    '30, before the refit of 34 steps with the validation rows'
    """
    saved = count(model_step)
    if model_step is not None and refit_steps is not None:
        return f"{saved}, before the refit of {count(refit_steps)} steps with the validation rows"
    if model_step is not None and stopped_early:
        return f"{saved}; stopped early at step {count(steps)}"
    if steps is not None and model_step is not None and model_step < steps:
        return f"{saved}, the best validation of {count(steps)} steps"
    return saved


def number(value: float | None, decimals: int = 5) -> str:
    """Format a number, such as a metric, with a fixed number of decimals; `-` for `None`.

    With four decimals or more, a number below 0.001 has four significant digits instead.

    >>> number(0.25), number(1.5e-6), number(0.0)
    ('0.25000', '1.5e-06', '0.00000')
    """
    if value and decimals >= 4 and abs(value) < 1e-3:
        return f"{value:.4g}"
    return UNKNOWN if value is None else f"{value:.{decimals}f}"


def entropy(value: float | None) -> str:
    """Format a normalised entropy, with a remark if it is 1 or more; `-` for `None`.

    >>> entropy(0.9), entropy(1.25), entropy(None)
    ('0.90000', '1.25000 (above 1: worse than a constant prediction)', '-')
    """
    worse = " (above 1: worse than a constant prediction)" if is_uninformative(value) else ""
    return number(value) + worse


def is_uninformative(entropy: float | None) -> bool:
    """Return True if a model with this normalised entropy is no better than a constant prediction.

    False if `entropy` is `None`.
    """
    return entropy is not None and entropy >= 1


def useless_targets(targets: Targets | None) -> list[str]:
    """Return the targets with an R2 of at most 0: their mean predicts them at least as well.

    >>> useless_targets({"price": {"r2": -0.5}, "stars": {"r2": 0.25}, "label": {"auc": 0.5}})
    ['price']
    """
    shares = ((name, figures.get("r2")) for name, figures in (targets or {}).items())
    return [name for name, share in shares if share is not None and share <= 0]


def scores(
    loss: float | None, auc: float | None, decimals: int = 5, targets: Targets | None = None
) -> str:
    """Format a loss and an AUC of the same rows, and the main metric of each of `targets`.

    >>> scores(0.5, 0.75, 2), scores(0.5, None, 2), scores(None, None)
    ('loss 0.50, AUC 0.75', 'loss 0.50', '-')
    >>> scores(None, None, 2, {"price": {"mae": 1.0, "rmse": 2.5}})
    'price RMSE 2.5'
    """
    named = (("loss", loss), ("AUC", auc))
    main = [f"{name} {number(value, decimals)}" for name, value in named if value is not None]
    more = [f"{target} {name} {value}" for target, name, value in main_metrics(targets, decimals)]
    return ", ".join([*main, *more]) or UNKNOWN


def main_metrics(targets: Targets | None, decimals: int = 4) -> list[tuple[str, str, str]]:
    """Return for each target its name, and the name and text of its main metric.

    The main metric is the first of `MAIN_METRICS` that has a value; targets without one are left
    out. The text has at most `decimals + 1` significant digits.
    """
    rows = []
    for target, metrics in (targets or {}).items():
        metric = next((name for name in MAIN_METRICS if metrics.get(name) is not None), None)
        if metric is not None:
            # Errors can have any magnitude, so use significant digits.
            value = f"{metrics[metric]:.{decimals + 1}g}"
            rows.append((target_name(target), MAIN_METRICS[metric], value))
    return rows


def target_metric_rows(targets: Targets | None, most: int = 16) -> list[tuple[str, str]]:
    """Return table rows (name, text) of the first `most` targets; the text has their metrics.

    Error bounds (`NAME_bound`) are left out.

    >>> target_metric_rows({"price": {"rmse": 2.5, "r2": None, "auc_bound": 0.1}})
    [('price', 'rmse 2.5, r2 -')]
    """
    rows = []
    for target, metrics in list((targets or {}).items())[:most]:
        values = {n: v for n, v in metrics.items() if not n.endswith("_bound")}
        texts = [f"{n} {UNKNOWN if v is None else f'{v:.6g}'}" for n, v in values.items()]
        rows.append((target_name(target), ", ".join(texts).replace("_", " ")))
    return rows


def own_metric_rows(own: Mapping[str, float | None] | None) -> list[tuple[str, str]]:
    """Return table rows (name, text) of user-defined metrics and of a retrieval model's recall.

    The recall is measured among the items of the scored rows, not among all items.

    >>> own_metric_rows({"recall_at_10": 0.25})
    [("recall at 10 among these rows' items", '0.25000')]
    """
    names = {"recall_at_10": "recall at 10 among these rows' items"}
    return [(names.get(n, n.replace("_", " ")), number(value)) for n, value in (own or {}).items()]


def score_rows(
    auc: str,
    log_loss: float | None,
    normalised_entropy: float | None,
    targets: Targets | None,
    own: Mapping[str, float | None] | None,
) -> list[tuple[str, str]]:
    """Return table rows (name, text) of user-defined metrics, the main target, and other targets.

    For a retrieval model (`own` has a recall), the main target's only row is its loss. Without a
    binary target (`log_loss` is `None`, and there are `targets`), there are no rows of a main
    target.

    Args:
        auc: The AUC, already formatted.
        own: User-defined metrics, and the recall of a retrieval model.

    >>> score_rows("-", 0.5, None, None, {"recall_at_10": 0.25})
    [("recall at 10 among these rows' items", '0.25000'), ('loss', '0.50000')]
    """
    main = [
        ("AUC", auc),
        ("loss", number(log_loss)),
        ("normalised entropy", entropy(normalised_entropy)),
    ]
    if "recall_at_10" in (own or {}):
        main = [("loss", number(log_loss))]
    elif targets and log_loss is None:
        main = []
    return [*own_metric_rows(own), *main, *target_metric_rows(targets)]


def target_name(target: str) -> str:
    """Return a target's name for display.

    These are its first 40 characters, with `?` for unprintable ones.
    """
    return "".join(c if c.isprintable() else "?" for c in target[:_MOST_OF_A_TARGET])


def score(auc: float | None, targets: Targets | None = None) -> str:
    """Format an AUC; if it is `None`, the main metric of the first target.

    >>> score(0.75), score(None, {"price": {"rmse": 2.5}}), score(None)
    ('0.7500', 'RMSE 2.5', '-')
    """
    main = main_metrics(targets)[:1] if auc is None else []
    return " ".join(main[0][1:]) if main else number(auc, 4)


def aucs(
    valid: float | None,
    train: float | None,
    valid_targets: Targets | None = None,
    targets: Targets | None = None,
) -> str:
    """Format the AUCs of validation and training rows as one text, with the metric's name.

    If both are `None`, the main metric of the first target of `valid_targets` (validation) and of
    `targets` (training) is used instead.

    >>> aucs(0.61, 0.9), aucs(None, 0.9), aucs(None, None)
    ('AUC 0.6100/0.9000', 'AUC -/0.9000', '-')
    >>> aucs(None, None, {"price": {"rmse": 2.5}}, {"price": {"rmse": 2.25}})
    'RMSE 2.5/2.25'
    """
    if valid is not None or train is not None:
        return f"AUC {number(valid, 4)}/{number(train, 4)}"
    of_valid, of_train = (main_metrics(of, 4)[:1] for of in (valid_targets, targets))
    if not of_valid and not of_train:
        return UNKNOWN
    (_, name, _), *_ = [*of_valid, *of_train]
    return f"{name} " + "/".join(one[0][2] if one else UNKNOWN for one in (of_valid, of_train))


def percent(value: float | None, decimals: int = 1) -> str:
    """Format a percentage, such as 50 for a half; `-` for `None`."""
    return UNKNOWN if value is None else f"{value:.{decimals}f} %"


def bounded(value: float | None, bound: float | None, decimals: int = 5) -> str:
    """Format a metric with the error bound of its bins (not a confidence interval), if it has one.

    >>> bounded(0.79, 1.2e-5), bounded(0.79, None, 2)
    ('0.79000 (bins: within 1.2e-05)', '0.79')
    """
    text = number(value, decimals)
    return f"{text} (bins: within {bound:.1e})" if bound and value is not None else text


def duration(seconds: float | None, decimals: int = 1) -> str:
    """Format a time span in its two largest units; `-` for `None`, negative and infinite spans.

    Spans below a minute have `decimals` decimals.

    >>> [duration(seconds, 0) for seconds in (4.2, 59.7, 75, 3700, 90_000)]
    ['4s', '1m00s', '1m15s', '1h01m', '1d01h']
    >>> duration(4.2), duration(None), duration(float("inf"))
    ('4.2s', '-', '-')
    """
    if seconds is None or not 0 <= seconds < float("inf"):
        return UNKNOWN
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.{decimals}f}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    if whole < 86400:
        return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
    return f"{whole // 86400}d{whole % 86400 // 3600:02d}h"


def phase_name(phase: str) -> str:
    """Return a phase of a step in words.

    >>> phase_name("data_wait"), phase_name("forward_backward")
    ('waiting for data', 'forward backward')
    """
    return "waiting for data" if phase == "data_wait" else phase.replace("_", " ")


def milliseconds(seconds: float | None) -> str:
    """Format the duration of a step, given in seconds, in milliseconds; `-` for `None`.

    >>> milliseconds(0.0123)
    '12.3 ms'
    """
    return UNKNOWN if seconds is None else f"{1000 * seconds:,.1f} ms"


def byte_size(size_bytes: float | None) -> str:
    """Format a size in bytes in the largest unit up to GiB that fits; `-` for `None`.

    >>> byte_size(3 * 2**30), byte_size(700_000), byte_size(1000)
    ('3.00 GiB', '683.59 KiB', '1,000 bytes')
    """
    if size_bytes is None:
        return UNKNOWN
    for unit_bytes, unit in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if size_bytes >= unit_bytes:
            return f"{size_bytes / unit_bytes:,.2f} {unit}"
    return f"{size_bytes:,.0f} bytes"


def command_line(*words: object) -> str:
    """Return a command of distrain as text that a shell splits into the same words.

    >>> command_line("train", "--resume", "runs/a"), command_line("report", "my runs/a")
    ('distrain train --resume runs/a', "distrain report 'my runs/a'")
    """
    return shlex.join(["distrain", *map(str, words)])


def set_option(field: str, value: object) -> str:
    """Return an option that sets a field of a job spec, as text for a shell.

    >>> set_option("train.init_from", "runs/a"), set_option("train.init_from", "my runs/a")
    ('--set train.init_from=runs/a', "--set 'train.init_from=my runs/a'")
    """
    return shlex.join(["--set", f"{field}={value}"])
