"""The numbers in sentences."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from driftwise.report.cells import Cell, Setting, Stat, place_of
from driftwise.report.comparison import compact
from driftwise.report.event_words import Outcome, drifted_checks, outcomes_of
from driftwise.report.saved_run import Run

SUBJECT, FLOOR, CEILING = "amr", "vanilla", "fr"
"""Whom a summary is about, and with whom it is compared."""


def plural(count: int, word: str) -> str:
    """Number and noun.

    >>> plural(1, "run"), plural(3, "seed")
    ('1 run', '3 seeds')
    """
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def title_of(settings: Sequence[Setting]) -> str:
    """What a report is about, for its heading."""
    benchmarks = [setting.first.benchmark for setting in settings]
    methods = [setting.first.method for setting in settings]
    adaptations = [cell.adaptation for setting in settings for cell in setting.cells]
    names = [_and(list(dict.fromkeys(each))) for each in (benchmarks, methods, adaptations)]
    return "{}, {}: {}".format(*names)


TERMS = {
    "FAA": "Final average accuracy: the percentage of test samples that are classified correctly after "
    "the last task, averaged over all tasks. Drifted classes are tested on their new concept.",
    "forgetting": "How far the accuracy on a task fell from its best value, in percentage points, "
    "averaged over tasks.",
    "drifted, stable": "The same accuracy, for the classes that drifted and for those that never did.",
    "labels": "Samples that a person had to label: for adaptation, to replace outdated samples; for "
    "monitoring, to know the class of the samples that are tested.",
    "verdict": "What the detector said of a class at a task: drifted, not drifted, or not testable; "
    "compared with what really happened.",
    "TPR, FPR": "True positive rate: the fraction of drifted classes that were detected at once. False "
    "positive rate: the fraction of checks of unchanged classes that raised an alarm.",
    "TPR, FPR, delay": "True positive rate: the fraction of drifted classes that were detected at once. "
    "False positive rate: the fraction of checks of unchanged classes that raised an alarm. Delay: "
    "tasks from a drift to its detection.",
    "time, FLOPs": "What training, detection and adaptation cost: wall-clock time, which depends on the "
    "machine, and floating-point operations, which do not. Evaluation is left out.",
}
ADAPTATIONS = {
    "vanilla": "Nothing is done about drift: the replay buffer keeps the outdated samples.",
    "fr": "Full relearning: every sample of a drifted class is labelled again, and the network learns "
    "from all of them.",
    "fr-flush": "Full relearning that first drops the outdated samples from the replay buffer.",
    "fr-scratch": "Full relearning of a network that starts anew.",
    "amr": "Adaptive memory realignment: the outdated samples of a drifted class in the replay buffer "
    "are replaced by as many freshly labelled ones.",
    "amr-plus": "Memory realignment with all its extensions: only drifted samples are replaced, samples "
    "without labels help, concepts that recur are remembered, and steps of rehearsal follow.",
}


def glossary(adaptations: Iterable[str], terms: Sequence[str]) -> dict[str, str]:
    """What the words of a page mean: the adaptations that it compares, then its measures."""
    known = sorted({*adaptations} & ADAPTATIONS.keys(), key=place_of)
    return {name: ADAPTATIONS[name] for name in known} | {term: TERMS[term] for term in terms}


def overview(settings: Sequence[Setting]) -> str:
    """One paragraph about the whole report."""
    if len(settings) == 1:
        return summary(settings[0])
    num_cells = sum(len(setting.cells) for setting in settings)
    num_runs = sum(len(cell.runs) for setting in settings for cell in setting.cells)
    sentences = [
        f"{plural(num_runs, 'run')} in {plural(num_cells, 'configuration')} and "
        f"{plural(len(settings), 'setting')}."
    ]
    for rival, words in ((FLOOR, "above"), (CEILING, "at or above")):
        pairs = [(setting.find(SUBJECT), setting.find(rival)) for setting in settings]
        known = [(ours, theirs) for ours, theirs in pairs if ours and theirs]
        adapted = [pair for pair in known if not any(cell.not_adapted for cell in pair)]
        ends = [(ours.mean(_faa), theirs.mean(_faa)) for ours, theirs in adapted]
        gaps = [ours - theirs for ours, theirs in ends if ours is not None if theirs is not None]
        won = sum(gap > 0 or (gap == 0 and rival == CEILING) for gap in gaps)
        if gaps:
            sentences.append(f"{SUBJECT} ends {words} {rival} in {won} of {len(gaps)} settings.")
        if idle := len(known) - len(adapted):
            sentences.append(
                f"{plural(idle, 'setting')} cannot be compared: {SUBJECT}"
                f"{'' if rival == FLOOR else f' or {rival}'} was not adapted there."
            )
    return " ".join(sentences)


def summary(setting: Setting) -> str:
    """A paragraph about one setting: where its cells end, what that took, how sure one can be."""
    ours = [cell for cell in setting.cells if cell.adaptation == SUBJECT]
    subject = max(ours or setting.cells, key=lambda cell: cell.mean(_faa) or 0.0)
    sentences = [_ending(setting, subject)]
    found = subject.mean(lambda run: run.detection.get("tpr"))
    if found is not None:
        sentences.append(
            f"The detector ({subject.detector}) found {found:.0%} of the drifted classes at once"
        )
    sentences += _false_alarms(subject)
    if max(len(cell.runs) for cell in setting.cells) == 1:
        sentences.append("One seed has no spread")
    return ". ".join(filter(None, [*sentences, setting.not_adapted])) + "."


def share_interval(part: float, whole: float) -> tuple[float, float]:
    """Wilson's 95 % interval for a share of independent trials.

    >>> [round(end, 3) for end in share_interval(1, 20)]
    [0.009, 0.236]
    """
    z = 1.959964
    centre = (part + z * z / 2) / (whole + z * z)
    half = z / (whole + z * z) * (part * (whole - part) / whole + z * z / 4) ** 0.5
    return max(0.0, centre - half), min(1.0, centre + half)


def _ending(setting: Setting, subject: Cell) -> str:
    """Where the cells end, and the labels of the subject beside those of full relearning."""
    faa = {cell: cell.stat(_faa) for cell in setting.cells}
    name = dict(zip(setting.cells, setting.labels, strict=True))
    words = f"{_seeds(setting)}, {name[subject]} ends at {_stat(faa[subject])}"
    others = [cell for cell in setting.cells if cell is not subject]
    verbs = ["ends at", *["at"] * len(others)]
    ends = [
        f"{name[cell]} {verb} {_mean(faa[cell])}" for cell, verb in zip(others, verbs, strict=False)
    ]
    words += f" where {_and(ends)}" if ends else " percent final average accuracy"
    ours = subject.mean(_asked)
    rival = setting.find(CEILING, subject.detector)
    theirs = None if rival is None or rival is subject else rival.mean(_asked)
    if ours is not None:
        words += f", with {compact(ours)} adaptation labels"
        words += "" if theirs is None else f" against {CEILING}'s {compact(theirs)}"
    return words


def _faa(run: Run) -> float | None:
    return run.faa


def _asked(run: Run) -> float | None:
    return run.labels.get("adaptation")


def _seeds(setting: Setting) -> str:
    counts = sorted({len(cell.runs) for cell in setting.cells})
    if counts == [1]:
        return "With one seed"
    return (
        f"Over {counts[0]} seeds" if len(counts) == 1 else f"Over {counts[0]} to {counts[-1]} seeds"
    )


def _stat(stat: Stat | None) -> str:
    if stat is None or stat.sd is None:
        return _mean(stat)
    return f"{stat.mean:.1f} ± {stat.sd:.1f}"


def _mean(stat: Stat | None) -> str:
    return "an unknown accuracy" if stat is None else f"{stat.mean:.1f}"


IMAGE_WORDS = {
    "brightness": ("darker", "brighter"),
    "contrast": ("less contrast", "more contrast"),
    "sharpness": ("blurred", "sharper or noisier"),
    "saturation": ("less colour", "more colour"),
    "warmth": ("bluer", "redder"),
}
"""What a lower and a higher mean of an image statistic stands for."""
LEAST_SHIFT = 0.3
"""Standard deviations below which a change is not put into words."""


def frequency_words(found: Mapping[str, Any], level: float) -> str:
    """Whether the frequencies differ, in one sentence.

    >>> frequency_words({"p_value": 0.5, "distance": 0.02}, 0.05)
    'The frequencies of classes do not differ significantly (chi-squared test, p = 0.5; distance 2%).'
    """
    verb = "differ" if found["p_value"] <= level else "do not differ significantly"
    return (
        f"The frequencies of classes {verb} (chi-squared test, p = {found['p_value']:.2g}; "
        f"distance {found['distance']:.0%})."
    )


def cautions(runs: Sequence[Run]) -> tuple[str, ...]:
    """The warnings of the runs, each once, with the first run that has it."""
    by_text: defaultdict[str, list[Run]] = defaultdict(list)
    for run in runs:
        for text in dict.fromkeys(run.warnings):
            by_text[text].append(run)
    lines = []
    for text, warned in by_text.items():
        others = f" and {plural(len(warned) - 1, 'other run')}" if len(warned) > 1 else ""
        lines.append(f"{warned[0].folder}{others}: {text}")
    return tuple(lines)


def _and(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


# --- false alarms, counted in the unit in which their rate was promised --------------------------

_UNCHANGED = (Outcome.QUIET, Outcome.FALSE_ALARM)
"""The outcomes of a check of an unchanged class."""


@dataclass(frozen=True, kw_only=True)
class Promise:
    """What a detector promises about false alarms, by the configuration of its run."""

    level: float | None
    """None: nothing is promised"""
    correction: str
    """for what: none for each class alone, benjamini-hochberg for the fraction of all alarms that
    are false, any other for all classes of a check together"""
    whole_stream: bool
    """for all checks of a run together, not for each"""
    monitor_labels: str
    """unless given, samples of drifted classes are among those of others: the promise is for
    checks at which all classes are unchanged"""

    @classmethod
    def of(cls, run: Run) -> Promise:
        """The promise of a run's detector; a gap chosen by hand promises nothing."""
        options = run.config.get("options")
        detector = options.get("detector") if isinstance(options, Mapping) else None
        chosen = detector if isinstance(detector, Mapping) else {}
        level = chosen.get("level")
        is_promised = isinstance(level, float) and chosen.get("max_statistic") is None
        return cls(
            level=level if is_promised else None,
            correction=str(chosen.get("correction", "none")) if is_promised else "none",
            whole_stream=is_promised and chosen.get("spending", "none") != "none",
            monitor_labels=run.monitor_labels,
        )

    @property
    def each_class(self) -> bool:
        """Whether a class, not a check, is what may raise a false alarm."""
        return self.correction == "none" and self.monitor_labels != "unknown"

    @property
    def all_unchanged(self) -> bool:
        """Whether it is for checks only at which nothing is drifted."""
        return self.monitor_labels != "given"

    @property
    def fraction_of_alarms(self) -> bool:
        """Whether a fraction of the alarms is promised; where nothing drifts, all alarms are false,
        and the promise is one about checks."""
        return self.correction == "benjamini-hochberg" and not self.all_unchanged

    @property
    def trials(self) -> str:
        """What may raise a false alarm or not, in words."""
        if self.whole_stream:
            trials = "classes followed through a run" if self.each_class else "runs"
            unchanged = " at checks at which all classes were unchanged"
            return trials + (unchanged if self.all_unchanged else "")
        if self.each_class and self.all_unchanged:
            return "verdicts on single classes while all classes were unchanged"
        if self.each_class:
            return "checks of single unchanged classes"
        whose = "all classes were unchanged"
        return f"checks at which {whose if self.all_unchanged else 'unchanged classes were tested'}"


def _false_alarms(cell: Cell) -> list[str]:
    """How often there was a false alarm, beside what was promised, in the same unit."""
    promise = Promise.of(cell.first)
    count = _false_fractions if promise.fraction_of_alarms else _trials
    found = [each for run in cell.runs for each in count(run, promise)]
    if not found:
        return []
    rate = sum(found) / len(found)
    if promise.fraction_of_alarms:
        words = (
            f"Of its alarms at a check, {rate:.1%} were false on average over "
            f"{plural(len(found), 'check')} with unchanged classes"
            if not promise.whole_stream
            else f"Its checks' shares of false alarms, added over a run, came to {rate:.1%} on"
            f" average over {plural(len(found), 'run')}"
        )
    else:
        low, high = share_interval(int(sum(found)), len(found))
        words = (
            f"It raised false alarms in {sum(found):,.0f} of {len(found):,} {promise.trials}"
            f" ({rate:.1%}; 95 % interval {low:.1%} to {high:.1%})"
        )
    if promise.level is None:
        return [words]
    whom = " for each class alone" if promise.each_class else ""
    when = " over all checks of a run" if promise.whole_stream else ""
    return [f"{words}; promised: at most {100 * promise.level:g}%{whom}{when}"]


def _trials(run: Run, promise: Promise) -> list[float]:
    """For each trial, 1 if it raised a false alarm."""
    left_out = drifted_checks(run) if promise.all_unchanged else frozenset()
    alarmed: dict[tuple[int | None, int | None], float] = {}
    for verdict, outcome in zip(run.verdicts, outcomes_of(run), strict=True):
        if verdict.task not in left_out and outcome in _UNCHANGED:
            when = None if promise.whole_stream else verdict.task
            whom = verdict.label if promise.each_class else None
            is_false = float(outcome is Outcome.FALSE_ALARM)
            alarmed[when, whom] = max(is_false, alarmed.get((when, whom), 0.0))
    return list(alarmed.values())


def _false_fractions(run: Run, promise: Promise) -> list[float]:
    """For each check of unchanged classes, the fraction of its alarms that is false."""
    by_task: defaultdict[int, Counter[Outcome]] = defaultdict(Counter)
    for verdict, outcome in zip(run.verdicts, outcomes_of(run), strict=True):
        by_task[verdict.task][outcome] += 1
    fractions = [
        met[Outcome.FALSE_ALARM] / max(1, met[Outcome.FALSE_ALARM] + met[Outcome.FOUND])
        for met in by_task.values()
        if any(met[outcome] for outcome in _UNCHANGED)
    ]
    return [sum(fractions)] if fractions and promise.whole_stream else fractions
