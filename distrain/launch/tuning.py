"""Searches for a better spec: each trial is a run, and Optuna chooses its values.

The folder of a search has `spec.yaml`, `trials.journal`, which Optuna appends to, a run folder
for each trial in `trials/`, and at the end `trials.json` and `best.yaml`. A trial that was killed
resumes from its checkpoint, so no trial is lost or started twice. A trial's values depend only on
the seed, the trial's number and the earlier trials; it is pruned by comparison with earlier trials
only. So an interrupted search has the same trials as an uninterrupted one.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from math import inf, isnan
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.random import SeedSequence

from distrain.errors import InputError, JobError, SpecError
from distrain.jobs.reasons import Reason
from distrain.jobs.run_paths import RunPaths
from distrain.jobs.spec.fit_to_table import is_retrieval, judging_metric
from distrain.jobs.spec.job import JobSpec
from distrain.jobs.spec.load import dump_yaml, flat, parse_spec, parse_yaml
from distrain.jobs.spec.training import MORE_IS_BETTER
from distrain.launch.reporting import LoggedProgress
from distrain.launch.run import CallbackFailed, RunRequest, make_request, train
from distrain.launch.spec_folder import claim_folder
from distrain.runs.attempts import read_records
from distrain.runs.run_file import has_succeeded
from distrain.storage.outputs import atomic_file
from distrain.version import how_to_install

if TYPE_CHECKING:
    import optuna
    from optuna.distributions import BaseDistribution

    from distrain.jobs.job_view import Record

_BATCH = "train.global_batch_size"
_OF_STEPS = ("evaluate.every_steps", "train.schedule.decay_start_step")
"""The fields in steps that are rescaled with the batch size, to stay the same share of an epoch."""

_SEARCHED = ("data", "model", "train", "embeddings")
"""The sections whose fields may be searched."""

FIRST_RUNG, REDUCTION = 2, 3
"""Trials may be pruned at validation `FIRST_RUNG`, and then at each validation whose number is
`REDUCTION` times the one before. One in `REDUCTION` trials continues."""

_OF_VALUES = (Reason.NON_FINITE_LOSS, Reason.OUT_OF_MEMORY, Reason.INVALID_SPEC)
"""Failures caused by the trial's own hyperparameters; the search continues."""

Row = dict[str, Any]
"""A trial that has ended: `number`, `state`, `value` and `values`."""


@dataclass(frozen=True)
class SearchResult:
    """The finished trials of a search, the best trial first."""

    metric: str  # the validation metric by which trials are compared
    trials: list[Row]
    # the metric of the given spec; `None` if it is outside the search space or its trial failed
    given: float | None

    @property
    def best(self) -> float | None:
        """The metric of the best trial; `None` if no trial was completed."""
        first = self.trials[0]
        return first["value"] if first["state"] == "complete" else None

    @property
    def gain(self) -> float | None:
        """The difference between the best trial's metric and the given spec's, at least 0.

        `None` if one of them is unknown.
        """
        if self.best is None or self.given is None:
            return None
        return abs(self.best - self.given)

    def to_json(self) -> dict[str, Any]:
        own = {"metric": self.metric, "given": self.given, "best": self.best, "gain": self.gain}
        return {**own, "trials": self.trials}


class _PrunedError(Exception):
    """Raised to prune a trial: others were better after the same number of validations."""


@dataclass(frozen=True)
class Search:
    """A search for better values of some of a spec's fields."""

    spec: JobSpec
    folder: Path
    # The total number of trials. The first has the spec's own values if they are in the search
    # space.
    trials: int
    # `FIELD=LOW..HIGH`, on a logarithmic scale for numbers above 0, or `FIELD=A,B,C`; empty for
    # `default_space`
    space: tuple[str, ...] = ()
    scheduler: str | None = None

    def run(self, say: Callable[[str], None]) -> SearchResult:
        """Run the remaining trials, and return the result of all; `say` gets lines for the user.

        Raises:
            InputError: Optuna is not installed, or the folder has the trials of another search or
                of other rows.
            SpecError: The spec has no validation metric, or the space cannot be searched.
            JobError: A trial failed for a reason other than its values, or the first trial failed.
        """
        optuna = _optuna()
        metric = self._metric()
        space = distributions(self.spec, self.space or default_space(self.spec))
        # An unusable spec must not leave a search folder.
        rows = None if self.folder.exists() else self._checked_rows(space)
        claim_folder(
            self.folder,
            {"spec": self.spec.model_dump(mode="json"), "space": list(self.space)},
            lambda held: (parse_spec(held["spec"]), held["space"]),
            holds="holds the trials of another spec or space",
            hint="Use the same spec and --search, or another --run-dir.",
        )
        file = self.folder / "trials.journal"
        _drop_torn_line(file)
        journal = optuna.storages.journal.JournalFileBackend(str(file))
        study = optuna.create_study(
            storage=optuna.storages.JournalStorage(journal),
            study_name="trials",
            load_if_exists=True,
            direction="maximize" if _best(metric) is max else "minimize",
            pruner=optuna.pruners.NopPruner(),  # `_is_pruned` decides
        )
        if not study.trials:
            study.enqueue_trial(_values_of(self.spec, space))
        if sum(trial.state.is_finished() for trial in study.trials) < self.trials:
            _check_same_rows(study, rows or self._checked_rows(space), self.folder)
        begun = [trial for trial in study.trials if trial.state.name == "RUNNING"]
        while sum(trial.state.is_finished() for trial in study.trials) < self.trials:
            trial = optuna.Trial(study, begun.pop(0)._trial_id) if begun else study.ask()
            values = {}
            for place, (name, one) in enumerate(space.items()):
                # One seed per field: a resumed trial reads values from the journal, and does not
                # draw them.
                words = (self.spec.train.seed, trial.number, place)
                seed = int(SeedSequence(words).generate_state(1)[0])
                study.sampler = optuna.samplers.TPESampler(seed=seed)
                values[name] = trial._suggest(name, one)
            short = {name.rpartition(".")[2]: value for name, value in values.items()}
            say(f"trial {trial.number + 1} of {self.trials}: {short}")
            self._run_trial(trial, values, metric, say)
        return self._finish(study, metric)

    def _checked_rows(self, space: Mapping[str, BaseDistribution]) -> str:
        """Check the job of a trial, and return the fingerprint (a hash) of its files."""
        values = {name: _usable_of(self.spec, name, one) for name, one in space.items()}
        values |= _values_of(self.spec, space)
        request = self._request(self.folder / "trials" / "checked", values, lambda _: None)
        return request.check().inputs.fingerprint

    def value_of_spec(self, rows: Iterable[Row]) -> float | None:
        """Return the metric of trial 0; `None` if it failed or differs from the given spec."""
        first = next(row for row in rows if row["number"] == 0)
        is_as_given = with_values(self.spec, first["values"]) == self.spec
        return first["value"] if is_as_given and first["state"] == "complete" else None

    def _metric(self) -> str:
        spec, model = self.spec, self.spec.model.model_dump(mode="json")
        metric = spec.best_metric
        if self.uses_windows:
            metric = judging_metric(model) or "log_loss"
        elif metric is None or not (spec.data.valid and spec.evaluate.every_steps):
            raise SpecError(
                "a search needs a validation metric, and validations during training",
                hint="Set data.valid, checkpoint.keep_best and evaluate.every_steps, as in --set "
                f"checkpoint.keep_best={judging_metric(model) or 'auc'} "
                "--set evaluate.every_steps=100; or, except for retrieval, "
                "set evaluate.next_window with windows. `distrain init MODEL` writes them (not for "
                "presets).",
            )
        tasks = model.get("tasks", {}).items()
        main = next((name for name, task in tasks if task["kind"] == "binary"), "")
        return metric.removeprefix(f"{main}.")  # its metrics have no prefix

    @property
    def uses_windows(self) -> bool:
        """Whether trials are compared by metrics of windows, scored before training on them."""
        retrieves = is_retrieval(self.spec.model.model_dump())
        return self.spec.evaluate.next_window and self.spec.best_metric is None and not retrieves

    def _validations(self, records: Iterable[Record], metric: str) -> dict[object, float]:
        """Return the metric's values in `records`, by the step of the validation.

        With `uses_windows` the keys are windows' names, and each value is the metric over all
        windows up to that one. Records without the metric are skipped.
        """
        values: dict[object, float | None] = {}
        for one in records:
            if self.uses_windows and one.window:
                values[one.window] = (one.progressive or {}).get(metric)
            elif not self.uses_windows and one.split == "valid":
                values[one.step] = one.loss if metric == "log_loss" else one.value(metric)
        return {place: value for place, value in values.items() if value is not None}

    def _run_trial(
        self,
        trial: optuna.Trial,
        values: Mapping[str, Any],
        metric: str,
        say: Callable[[str], None],
    ) -> None:
        root = self.folder / "trials" / f"{trial.number:04}"
        paths, state = RunPaths(root), "COMPLETE"
        study, best_of = trial.study, _best(metric)
        seen: dict[object, float] = {}  # a resumed trial repeats validations since its checkpoint
        reported = {**study.trials[trial.number].intermediate_values}
        before = [one.intermediate_values for one in study.trials[: trial.number]]

        def watch(*records: Record) -> None:
            for place, value in self._validations(records, metric).items():
                seen[place] = value
                number = list(seen).index(place) + 1
                if number not in reported:
                    reported[number] = value
                    trial.report(value, number)
                if _is_pruned(value, number, before, best_of):
                    raise _PrunedError

        try:
            watch(*read_records(paths))
            if not has_succeeded(paths):
                train(self._request(root, values, watch), LoggedProgress(lambda _: None))
        except (_PrunedError, CallbackFailed) as ended:
            if isinstance(ended, CallbackFailed) and not isinstance(ended.error, _PrunedError):
                raise ended.error from None
            state = "PRUNED"
        except (SpecError, JobError) as error:
            of_values = isinstance(error, SpecError) or error.where.get("reason") in _OF_VALUES
            if trial.number == 0 or not of_values:
                raise
            say(f"trial {trial.number + 1} cannot be trained: {error.message}")
            state = "FAIL"
        scores = [*self._validations(read_records(paths), metric).values()]
        best = best_of(scores[-1:] if self.uses_windows else scores, default=None)
        if state == "COMPLETE" and not scores:
            say(f"trial {trial.number + 1} failed: no validation has a value of {metric}")
            state = "FAIL"
        best = best if state == "COMPLETE" else None
        study.tell(trial.number, best, state=_optuna().trial.TrialState[state])

    def _request(
        self, root: Path, values: Mapping[str, Any], watch: Callable[[Record], None]
    ) -> RunRequest:
        # Trials are compared by validations before a refit, which would only take time.
        spec = with_values(self.spec, {**values, "train.refit": False})
        return make_request(root, spec, scheduler=self.scheduler, callbacks=(watch,))

    def _finish(self, study: optuna.Study, metric: str) -> SearchResult:
        ended = [trial for trial in study.trials if trial.state.is_finished()]
        sign = -1 if study.direction.name == "MAXIMIZE" else 1
        ended.sort(key=lambda one: (one.state.name != "COMPLETE", sign * (one.value or 0.0)))
        rows = [
            Row(number=t.number, state=t.state.name.lower(), value=t.value, values=t.params)
            for t in ended
        ]
        result = SearchResult(metric, rows, self.value_of_spec(rows))
        _write(self.folder / "trials.json", json.dumps(result.to_json(), indent=1) + "\n")
        if rows[0]["state"] == "complete":
            best = with_values(self.spec, rows[0]["values"])
            _write(self.folder / "best.yaml", dump_yaml(best.model_dump(mode="json")))
        return result


def default_space(spec: JobSpec) -> tuple[str, ...]:
    """Return the default search space, as texts for `Search.space`.

    Its fields are the learning rate, the embedding and hidden widths, dropout and the batch size,
    except fields that the spec's model does not have. A batch size of `auto`, below 32 or from
    65,536 on is not searched.

    >>> spec = parse_spec({"data": {"train": "t"}, "model": {"kind": "dlrm"}})
    >>> default_space(spec)
    ('train.optimizer.lr=0.002..0.05', 'model.embedding_dim=8,16,32')
    """
    lr, batch, fields = spec.train.optimizer.lr, spec.train.global_batch_size, _fields(spec)
    space = {"train.optimizer.lr": f"{lr / 5:g}..{lr * 5:g}", "model.embedding_dim": "8,16,32"}
    space["model.dropout"] = "0.0,0.1,0.2,0.4"
    space["model.hidden"] = f"{fields.get('model.hidden')};[64, 32];[256, 128, 64]"
    if batch != "auto" and 32 <= batch < 65536:
        space[_BATCH] = f"{batch // 2},{batch},{2 * batch}"
    return tuple(f"{name}={values}" for name, values in space.items() if name in fields)


def distributions(spec: JobSpec, space: Iterable[str]) -> dict[str, BaseDistribution]:
    """Return Optuna's distribution of each field in a space, by field; choices are kept as text.

    Raises:
        SpecError: A text is neither a range nor a list of choices, or has only one choice; a field
            is repeated or cannot be searched; the spec rejects both ends of a range; or it rejects
            a choice, both alone and with each choice of each other field.
    """
    from optuna import distributions as kinds

    space_by_field: dict[str, BaseDistribution] = {}
    for text in space:
        name, _, values = text.partition("=")
        left, dots, right = values.partition("..")
        ends: list[Any] = [_parsed(end) if dots else None for end in (left, right)]
        low, high = ends
        if name in space_by_field:
            raise SpecError(f"{name} is given twice", hint="Give one --search per field.")
        if dots and all(isinstance(end, int | float) for end in ends) and -inf < low < high < inf:
            whole = not any(isinstance(one, float) for one in (*ends, _fields(spec).get(name)))
            kind = kinds.IntDistribution if whole else kinds.FloatDistribution
            space_by_field[name], some = kind(low, high, log=low > 0), ends
        elif values and not dots:
            some = [one.strip() for one in values.split(";" if "[" in values else ",")]
            firsts: dict[str, str] = {}
            for one in some:
                firsts.setdefault(_taken(spec, name, one), one)
            some = [*firsts.values()]
            if len(some) < 2:
                raise SpecError(
                    f"{name} has only one value, {some[0]}: there is nothing to search",
                    hint=f"Add other values, or set it with --set {name}={some[0]}.",
                )
            space_by_field[name] = kinds.CategoricalDistribution(some)
        else:
            raise SpecError(
                f"{text!r} is neither a range nor a list of choices",
                hint="Write FIELD=LOW..HIGH or FIELD=A,B,C; separate lists with `;`.",
            )
        if name == "data.valid":
            raise SpecError(
                "data.valid cannot be searched: trials are compared on it",
                hint="Remove it from --search.",
            )
        if name and name.partition(".")[0] not in _SEARCHED:
            raise SpecError(
                f"{name} does not affect what a model learns",
                hint=f"Search a field of {', '.join(_SEARCHED)}.",
            )
        mistakes = [mistake for one in some if (mistake := _mistake(spec, {name: one}))]
        if len(mistakes) == len(some):
            raise mistakes[0]
    for name in space_by_field:
        _check_choices(spec, name, space_by_field)
    return space_by_field


def _check_choices(spec: JobSpec, name: str, space: Mapping[str, Any]) -> None:
    """Raise `SpecError` if the spec rejects a choice of the field `name` for all other choices.

    A choice is rejected if it is invalid alone, and also with each single choice of each other
    field in `space`.
    """
    others = [{}, *({o: c} for o in space if o != name for c in getattr(space[o], "choices", ()))]
    for choice in getattr(space[name], "choices", ()):
        mistakes = (_mistake(spec, {name: choice, **other}) for other in others)
        first = next(mistakes)
        if first is not None and all(mistakes):
            raise SpecError(
                f"{name} cannot be searched over {choice}: {first.message}",
                where=first.where,
                hint=f"Leave {choice} out of the choices of {name}.",
            )


def _check_same_rows(study: optuna.Study, rows: str, folder: Path) -> None:
    """Raise an `InputError` if earlier trials used other rows; `rows` is a fingerprint.

    A search without trials remembers the fingerprint, and so does one of an earlier version.
    """
    before = study.user_attrs.get("rows")
    if before is None:
        study.set_user_attr("rows", rows)
    elif before != rows:
        raise InputError(
            "the rows have changed since the search began, so its trials cannot be compared",
            where={"path": str(folder)},
            hint="Choose another --run-dir, or restore the rows.",
        )


def _is_pruned(
    value: float,
    number: int,
    before: Iterable[Mapping[int, float]],
    best_of: Callable[..., float],
) -> bool:
    """Return True if a trial is pruned at a validation, by asynchronous successive halving.

    At validations 2, 6, 18, ... a trial continues only if it is among the best third (at least one)
    of the trials that reached the validation; NaN values do not count. A trial whose own value is
    NaN is pruned there. At other validations no trial is pruned.

    Args:
        value: The trial's value of the metric at this validation.
        number: The number of the validation, from 1.
        before: For each earlier trial, its values by the number of the validation.
        best_of: `max` or `min`: whether larger or smaller values are better.
    """
    rung = FIRST_RUNG
    while rung < number:
        rung *= REDUCTION
    if rung != number or isnan(value):
        return rung == number
    others = [one[number] for one in before if number in one]
    reached = sorted([value, *(other for other in others if not isnan(other))])
    kept = max(1, len(reached) // REDUCTION)
    return value not in (reached[-kept:] if best_of is max else reached[:kept])


def _parsed(text: str) -> Any:
    """Return the YAML value of a text; if it is not YAML, the text itself."""
    with suppress(ValueError):
        return parse_yaml(text)
    return text


def _taken(spec: JobSpec, name: str, text: str) -> str:
    """Return the value that the spec gives field `name` for the value `text`, as its `repr`.

    Equal values have equal results, however they are written. Returns `text` if the spec rejects
    it.
    """
    with suppress(SpecError):
        return repr(_fields(with_values(spec, {name: text}))[name])
    return text


def _mistake(spec: JobSpec, values: Mapping[str, Any]) -> SpecError | None:
    try:
        with_values(spec, values)
    except SpecError as error:
        return error
    return None


def with_values(spec: JobSpec, values: Mapping[str, Any]) -> JobSpec:
    """Return the spec with a trial's values, by field.

    If they change the batch size, the fields `_OF_STEPS` are rescaled, unless the values set them,
    too. Raises `SpecError` for invalid values.
    """
    document, fields = spec.model_dump(mode="json"), _fields(spec)
    overrides = [f"{name}={value}" for name, value in values.items()]
    before, now = fields[_BATCH], _parsed(str(values.get(_BATCH, fields[_BATCH])))
    if before != now and isinstance(before, int) and isinstance(now, int) and now > 0:
        steps = {n: fields.get(n) for n in _OF_STEPS if n not in values}
        overrides += [f"{n}={max(1, round(v * before / now))}" for n, v in steps.items() if v]
    return parse_spec(document, overrides)


def _values_of(spec: JobSpec, space: Mapping[str, BaseDistribution]) -> dict[str, Any]:
    """Return the values of the searched fields in the spec, by field.

    A value outside the field's distribution is left out. Choices are given as their text.
    """
    fields, own = _fields(spec), dict[str, Any]()
    for name, one in space.items():
        value, choices = fields.get(name), getattr(one, "choices", None)
        if choices is None:  # a range
            same = [value] if value is not None and one._contains(value) else []
        else:
            same = [choice for choice in choices if _parsed(choice) == value]
        if same:
            own[name] = same[0]
    return own


def _usable_of(spec: JobSpec, name: str, distribution: Any) -> Any:
    """Return a value of field `name` that the spec accepts: a choice, or an end of the range."""
    some = getattr(distribution, "choices", None) or (distribution.low, distribution.high)
    return next(one for one in some if _mistake(spec, {name: one}) is None)


def _fields(spec: JobSpec) -> dict[str, Any]:
    return flat(spec.model_dump(mode="json"))


def _best(metric: str) -> Callable[..., Any]:
    return max if metric.rpartition(".")[2] in MORE_IS_BETTER else min


def _write(place: Path, text: str) -> None:
    with atomic_file(place) as file:
        file.write_text(text)


def _drop_torn_line(file: Path) -> None:
    """Remove an incomplete last line, left by a killed process; Optuna would append to it."""
    content = file.read_bytes() if file.exists() else b""
    if content:
        os.truncate(file, content.rfind(b"\n") + 1)


def _optuna() -> Any:
    try:
        import optuna
    except ImportError:
        hint = f"Install it by {how_to_install('tune')}."
        raise InputError("a search needs Optuna, which is not installed", hint=hint) from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna
