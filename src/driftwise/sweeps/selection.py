"""Some runs of a plan, by what `--only` says."""

from __future__ import annotations

from collections.abc import Sequence

import yaml

from driftwise.errors import UserError, unknown_name
from driftwise.sweeps.grid import Value
from driftwise.sweeps.plan import Plan, PlannedRun, names_in_places


def chosen(plan: Plan, only: Sequence[str]) -> list[PlannedRun]:
    """The runs at the places that `--only` names."""
    names = {key: key for key in plan.runs[0].place} | names_in_places(plan.grid)
    wanted: dict[str, list[Value]] = {}
    for text in only:
        key, equals, values = text.partition("=")
        key = key.replace("-", "_")
        if not equals or not values:
            raise UserError(f"--only takes KEY=VALUE,...; got {text!r}")
        if key not in names:
            raise unknown_name("setting of the grid", key, names)
        there = list(dict.fromkeys(run.place[names[key]] for run in plan.runs))
        for word in values.split(","):
            meant = [value for value in there if _means(word, value)]
            if not meant:
                raise unknown_name(f"value of {key}", word, map(str, there))
            wanted.setdefault(names[key], []).extend(meant)
    runs = [
        run
        for run in plan.runs
        if all(run.place[name] in values for name, values in wanted.items())
    ]
    if not runs:
        raise UserError(f"the plan has no run at --only {' '.join(only)}; see --dry-run")
    return runs


def _means(word: str, value: Value) -> bool:
    """Whether a word is how one would write a value, in Python or in YAML: true, 1 for 1.0."""
    if word == str(value):
        return True
    try:
        read = yaml.safe_load(word)
    except yaml.YAMLError:
        return False
    return read == value and isinstance(read, bool) == isinstance(value, bool)
