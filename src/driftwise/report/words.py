"""The numbers in sentences."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from driftwise.report.alarms import Promise, false_alarms_of, promise_of
from driftwise.report.cells import Cell, Setting, Stat
from driftwise.report.columns import compact
from driftwise.report.run import Run

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
    benchmarks = _distinct([setting.first.benchmark for setting in settings])
    methods = _distinct([setting.first.method for setting in settings])
    adaptations = _distinct([cell.adaptation for setting in settings for cell in setting.cells])
    return f"{_and(benchmarks)}, {_and(methods)}: {_and(adaptations)}"


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
        adapted = [_ends(*pair) for pair in known if not any(cell.not_adapted for cell in pair)]
        both = [
            (ours, theirs) for ours, theirs in adapted if ours is not None if theirs is not None
        ]
        won = [ours > theirs if rival == FLOOR else ours >= theirs for ours, theirs in both]
        if both:
            sentences.append(
                f"{SUBJECT} ends {words} {rival} in {sum(won)} of {len(both)} settings."
            )
        if idle := len(known) - len(adapted):
            sentences.append(
                f"{plural(idle, 'setting')} cannot be compared: {SUBJECT}"
                f"{'' if rival == FLOOR else f' or {rival}'} was not adapted there."
            )
    return " ".join(sentences)


def _ends(*cells: Cell) -> tuple[float | None, ...]:
    return tuple(cell.mean(lambda run: run.faa) for cell in cells)


def summary(setting: Setting) -> str:
    """A paragraph about one setting: where its cells end, what that took, how sure one can be."""
    subject = _subject(setting)
    name = dict(zip(setting.cells, setting.labels, strict=True))
    faa = {cell: cell.stat(lambda run: run.faa) for cell in setting.cells}
    sentences = [_ending_sentence(setting, subject, name, faa) + _label_clause(setting, subject)]
    found = subject.mean(lambda run: run.detection.get("tpr"))
    if found is not None:
        sentences.append(
            f"The detector ({subject.detector}) found {found:.0%} of the drifted classes at once"
        )
    sentences += _false_alarms(subject)
    if max(len(cell.runs) for cell in setting.cells) == 1:
        sentences.append("One seed has no spread")
    if setting.not_adapted:
        sentences.append(setting.not_adapted)
    return ". ".join(sentences) + "."


def _false_alarms(cell: Cell) -> list[str]:
    """How often there was a false alarm, beside what was promised, in the same unit."""
    found, promise = false_alarms_of(cell), promise_of(cell.first)
    if found is None:
        return []
    rate = found.alarmed / found.trials
    if promise.share_of_alarms:
        words = (
            f"Of its alarms at a check, {rate:.1%} were false on average over "
            f"{plural(found.trials, 'check')} with unchanged classes"
            if not promise.whole_stream
            else f"Its checks' shares of false alarms, added over a run, came to {rate:.1%} on"
            f" average over {plural(found.trials, 'run')}"
        )
    else:
        low, high = share_interval(int(found.alarmed), found.trials)
        words = (
            f"It raised false alarms in {found.alarmed:,.0f} of {found.trials:,} {_trials(promise)}"
            f" ({rate:.1%}; 95 % interval {low:.1%} to {high:.1%})"
        )
    if promise.level is None:
        return [words]
    whom = " for each class alone" if promise.each_class else ""
    when = " over all checks of a run" if promise.whole_stream else ""
    return [f"{words}; promised: at most {100 * promise.level:g}%{whom}{when}"]


def _trials(promise: Promise) -> str:
    """What may raise a false alarm or not, in words."""
    if promise.whole_stream:
        trials = "classes followed through a run" if promise.each_class else "runs"
        unchanged = " at checks at which all classes were unchanged"
        return trials + (unchanged if promise.all_unchanged else "")
    if promise.each_class and promise.all_unchanged:
        return "verdicts on single classes while all classes were unchanged"
    if promise.each_class:
        return "checks of single unchanged classes"
    whose = "all classes were unchanged"
    return f"checks at which {whose if promise.all_unchanged else 'unchanged classes were tested'}"


def share_interval(part: int, whole: int) -> tuple[float, float]:
    """Wilson's 95 % interval for a share of independent trials.

    >>> [round(end, 3) for end in share_interval(1, 20)]
    [0.009, 0.236]
    """
    z = 1.959964
    centre = (part + z * z / 2) / (whole + z * z)
    half = z / (whole + z * z) * (part * (whole - part) / whole + z * z / 4) ** 0.5
    return max(0.0, centre - half), min(1.0, centre + half)


def _subject(setting: Setting) -> Cell:
    ours = [cell for cell in setting.cells if cell.adaptation == SUBJECT]
    return max(ours or setting.cells, key=lambda cell: cell.mean(lambda run: run.faa) or 0.0)


def _ending_sentence(
    setting: Setting, subject: Cell, name: dict[Cell, str], faa: dict[Cell, Stat | None]
) -> str:
    start = f"{_seeds(setting)}, {name[subject]} ends at {_stat(faa[subject])}"
    others = [cell for cell in setting.cells if cell is not subject]
    if not others:
        return f"{start} percent final average accuracy"
    ends = [f"{name[cell]} at {_mean(faa[cell])}" for cell in others[1:]]
    return f"{start} where " + _and([f"{name[others[0]]} ends at {_mean(faa[others[0]])}", *ends])


def _label_clause(setting: Setting, subject: Cell) -> str:
    """The subject's labels against full relearning's; empty where nothing is known."""
    ours = subject.mean(_asked)
    rival = setting.find(CEILING, subject.detector)
    if ours is None:
        return ""
    clause = f", with {compact(ours)} adaptation labels"
    theirs = None if rival is None or rival is subject else rival.mean(_asked)
    return clause if theirs is None else f"{clause} against {CEILING}'s {compact(theirs)}"


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


def _distinct(names: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(names))


def _and(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
