"""Saved results as tables to compute with: plain rows, or data frames of pandas or polars."""

from __future__ import annotations

import importlib
import math
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from driftwise.errors import UserError
from driftwise.report.read import find_runs
from driftwise.report.saved_run import Run

Row = dict[str, Any]

_SCALARS = (
    *("benchmark", "method", "adaptation", "detector", "buffer_size", "num_drifts", "seed"),
    *("faa", "forgetting", "forgetting_since_event", "faa_drifted", "faa_stable"),
    *("backward_transfer", "macro_f1", "gradient_steps"),
)
_GROUPS = ("labels", "seconds", "flops", "detection")


@dataclass(frozen=True, kw_only=True)
class Results:
    """Finished runs as three tables that share the column `folder`.

    `driftwise.results` reads them.

    >>> import tempfile
    >>> import driftwise
    >>> folder = tempfile.mkdtemp() + "/run"
    >>> config = driftwise.RunConfig(epochs=1, max_per_class=40)  # few images: a quick example
    >>> result = driftwise.run(config, folder)
    >>> found = driftwise.results(folder)
    >>> found
    Results(1 runs, 15 accuracy, 20 verdicts, 0 warnings)
    >>> list(found.accuracy[0])
    ['folder', 'after_task', 'on_task', 'accuracy']
    """

    runs: list[Row]
    """a row for each run: settings, accuracy, and costs as labels_adaptation, seconds_train, ..."""
    accuracy: list[Row]
    """a row for each task that was tested after each task: after_task, on_task, percent"""
    verdicts: list[Row]
    """a row for each class that was checked at each task"""
    warnings: tuple[str, ...] = ()
    """what was left out: runs that are unfinished or damaged"""
    saved: tuple[Run, ...] = ()
    """the runs themselves, for `driftwise.plot`"""

    def __repr__(self) -> str:
        """How much there is; the rows are many."""
        sizes = (f"{len(self._rows(name))} {name}" for name in ("runs", "accuracy", "verdicts"))
        return f"Results({', '.join(sizes)}, {len(self.warnings)} warnings)"

    def to_pandas(self, table: str = "runs") -> Any:
        """One of the tables as a pandas data frame."""
        return _module("pandas").DataFrame(self._rows(table))

    def to_polars(self, table: str = "runs") -> Any:
        """One of the tables as a polars data frame."""
        return _module("polars").DataFrame(self._rows(table), infer_schema_length=None)

    def _rows(self, table: str) -> list[Row]:
        tables = {"runs": self.runs, "accuracy": self.accuracy, "verdicts": self.verdicts}
        if table not in tables:
            raise UserError(f"table must be one of {', '.join(tables)}; got {table!r}")
        return tables[table]


def results(paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> Results:
    """Every finished run in a folder, or in several, at any depth.

    Raises:
        UserError: there is none.

    >>> import tempfile
    >>> import driftwise
    >>> folder = tempfile.mkdtemp() + "/run"
    >>> config = driftwise.RunConfig(epochs=1, max_per_class=40)  # few images: a quick example
    >>> result = driftwise.run(config, folder)
    >>> [row["adaptation"] for row in driftwise.results(folder).runs]
    ['amr']
    """
    given = [paths] if isinstance(paths, str | os.PathLike) else paths
    found = find_runs([Path(path) for path in given])
    return Results(
        runs=[_summary(run) for run in found.runs],
        accuracy=[row for run in found.runs for row in _accuracy(run)],
        verdicts=[row for run in found.runs for row in _verdicts(run)],
        warnings=found.warnings,
        saved=found.runs,
    )


def _summary(run: Run) -> Row:
    row: Row = {"folder": str(run.folder), **{name: getattr(run, name) for name in _SCALARS}}
    for group in _GROUPS:
        row |= {f"{group}_{name}": value for name, value in getattr(run, group).items()}
    return row


def _accuracy(run: Run) -> Iterable[Row]:
    for after, on_tasks in enumerate(run.accuracy.tolist(), start=1):
        for on, percent in enumerate(on_tasks, start=1):
            if not math.isnan(percent):
                yield {
                    "folder": str(run.folder),
                    "after_task": after,
                    "on_task": on,
                    "accuracy": percent,
                }


def _verdicts(run: Run) -> Iterable[Row]:
    for verdict in run.verdicts:
        row = verdict._asdict()
        del row["p_values"]
        yield {"folder": str(run.folder), **row, "class_name": run.class_names[verdict.label]}


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UserError(f"a data frame of {name} needs it: pip install {name}") from error
