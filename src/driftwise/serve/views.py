"""What people and clients are shown, as plain data; read from any thread."""

from __future__ import annotations

import io
import itertools
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from driftwise.errors import UserError
from driftwise.files import read_object
from driftwise.runs.store import RECORDS, is_busy, is_finished, is_run, read_config
from driftwise.serve.board import Card
from driftwise.serve.history import Examples
from driftwise.serve.measures import Measures
from driftwise.serve.service import Service
from driftwise.serve.settings import ServeSettings
from driftwise.stats.kind_names import ACTIONS
from driftwise.sweeps.plan import FAILURES, RUNS

MAX_CLASSES = 100
"""that a dashboard shows"""
MAX_VALUES = 256
"""of a vector in a chart"""
MAX_RUNS, MAX_DEPTH = 500, 4
RUNS_SECONDS = 1.0
"""between two readings of the folder of runs"""


def status(service: Service) -> dict[str, Any]:
    """Mode, classes, buffer, labels, what waits."""
    view = service.view
    state = view["status"]
    return {
        **state,
        **{
            name: {str(label): count for label, count in state.get(name, {}).items()}
            for name in ("buffer", "buffer_earlier")
        },
        "names": {
            str(label): service.settings.name_of(label) for label in state.get("classes", ())
        },
        "paused": view["paused"],
        "accuracy": view["accuracy"],
        "applied": view["applied"],
        "changes_waiting": service.waiting,
        "num_events": view["num_events"],
        "num_verdicts": view["num_verdicts"],
        "inbox": service.board.summary(),
        "failure": view["failure"],
        "save_failure": service.save_failure,
        "publish_failure": service.publish_failure,
        "notes": service.notes,
        "ready": service.ready,
    }


def after(service: Service, kind: str, since: int, limit: int) -> list[dict[str, Any]]:
    """Events or verdicts after a number, the oldest first."""
    with service.history.lock:
        lines = [dict(line) for line in getattr(service.history, kind) if line["number"] > since]
    return lines[:limit]


def dashboard(service: Service, measures: Measures, label: int | None) -> dict[str, Any]:
    """Curves, classes, verdicts, events, load."""
    history = service.history
    with history.lock:
        points = history.series.points(None if label is None else str(label))
        probes = [dict(each) for each in history.probes]
        totals = history.series.totals()
        recent = {name: history.series.points(name)[-1:] for name in list(totals)[:MAX_CLASSES]}
        verdicts = [dict(line) for line in history.verdicts][-200:]
        events = [dict(line) for line in history.events][-50:]
    if label is not None:
        probes = [
            {
                **each,
                "samples": each["classes"][str(label)][0],
                "correct": each["classes"][str(label)][1],
            }
            for each in probes
            if str(label) in each["classes"]
        ]
    last = {line["label"]: line for line in verdicts}
    state = status(service)
    inbox = service.board.counts()
    classes = []
    for name in sorted(totals, key=int)[:MAX_CLASSES]:
        count, number, now = totals[name], int(name), recent.get(name) or [{}]
        verdict = last.get(number, {})
        classes.append(
            {
                "label": number,
                "name": service.settings.name_of(number),
                "samples": int(count["samples"]),
                "labelled": int(count["labelled"]),
                "accuracy": now[0].get("accuracy"),
                "estimate": now[0].get("estimate"),
                "buffer": state["buffer"].get(name, 0),
                "buffer_earlier": state["buffer_earlier"].get(name, 0),
                "requests": inbox.get(number, 0),
                "drifted": verdict.get("drifted"),
                "kind": verdict.get("kind"),
                "p_value": verdict.get("p_value"),
                "state": _state_of(number, state),
            }
        )
    for line in verdicts:
        line["name"] = service.settings.name_of(line["label"])
    return {
        "status": state,
        "points": points,
        "probes": [
            {key: each[key] for key in ("time", "sample", "samples", "correct")} for each in probes
        ],
        "classes": classes,
        "verdicts": verdicts,
        "actions": ACTIONS,
        "events": events,
        "load": measures.summary(),
        "snapshots": service.snapshots.list()[::-1],
    }


def _state_of(label: int, state: dict[str, Any]) -> str:
    for name, text in (
        ("held", "waits for approval"),
        ("waiting", "waits for labels"),
        ("untestable", "cannot be tested"),
    ):
        if label in state.get(name, ()):
            return text
    return ""


def card(card: Card, settings: ServeSettings) -> dict[str, Any]:
    """A sample that waits for a label."""
    return {
        "id": card.id,
        "predicted": card.predicted,
        "name": settings.name_of(card.predicted),
        "confidence": card.confidence,
        "text": card.text,
    }


def leased(service: Service, cards: Sequence[Card]) -> dict[str, Any]:
    """Cards with what the model believes now, and the progress against the budget."""
    settings, shown = service.settings, []
    beliefs = service.predict(np.stack([each.sample for each in cards])) if cards else ()
    for each, probabilities in zip(cards, beliefs, strict=True):
        best = np.argsort(-probabilities, kind="stable")[:3]
        shown.append(
            {
                **card(each, settings),
                "beliefs": [
                    {
                        "label": int(label),
                        "name": settings.name_of(int(label)),
                        "probability": round(float(probabilities[label]), 4),
                    }
                    for label in best
                ],
                **_shown(each),
            }
        )
    state = service.view["status"]
    return {
        "cards": shown,
        "open": len(service.board),
        "by_class": {
            settings.name_of(label): count for label, count in service.board.counts().items()
        },
        "spent": state.get("labels", {}).get("adaptation", 0),
        "budget": state.get("label_budget"),
        "classes": [
            {"label": label, "name": settings.name_of(label)}
            for label in range(max(state.get("outputs", 0), len(settings.class_names)))
        ],
    }


def _shown(card: Card) -> dict[str, Any]:
    """How a sample is shown: as a text, an image or a chart of its values."""
    if card.text is not None:
        return {"kind": "text"}
    if card.sample.ndim == 3:
        return {"kind": "image", "url": f"/v1/requests/{card.id}/image"}
    return {"kind": "vector", "values": values_of(card.sample[None])[0], "length": card.sample.size}


def examples(service: Service, verdict: int) -> Examples | None:
    """Samples of a drifted class from before and after; None: they are not kept any more."""
    with service.history.lock:
        return service.history.examples.get(verdict)


def values_of(samples: np.ndarray) -> list[list[float]]:
    """The first values of each sample, for a chart."""
    values: list[list[float]] = samples.reshape(len(samples), -1)[:, :MAX_VALUES].tolist()
    return values


def png_of(sample: np.ndarray) -> bytes | None:
    """A sample as a PNG; None: it is no image. Floats are stretched from their least to greatest."""
    if sample.ndim != 3:
        return None
    if sample.dtype != np.uint8:
        pixels = sample.transpose(1, 2, 0).astype(float)
        span = float(pixels.max() - pixels.min()) or 1.0
        sample = np.round(255 * (pixels - pixels.min()) / span).astype(np.uint8)
    if sample.shape[2] not in (1, 3):
        sample = sample[:, :, :1]
    file = io.BytesIO()
    Image.fromarray(sample.squeeze(2) if sample.shape[2] == 1 else sample).save(file, "PNG")
    return file.getvalue()


class RunsView:
    """Runs below a folder, read anew at most once a second."""

    def __init__(self, folder: Path, *, alone: bool = False) -> None:
        """`alone`: there is no learner beside it whose pages could be shown."""
        self.alone = alone
        if not folder.is_dir():
            raise UserError(f"{folder} is no folder; give the one that holds the runs")
        self._folder = folder
        self._lock = threading.Lock()
        self._read_at = float("-inf")
        self._runs: list[dict[str, Any]] = []

    def list(self) -> list[dict[str, Any]]:
        """Name, state and accuracy after each task; the latest first."""
        with self._lock:
            if time.monotonic() - self._read_at > RUNS_SECONDS:
                self._runs = [_run(path, self._folder) for path in _runs_below(self._folder)]
                self._runs += _without_folder(self._folder)
                self._runs.sort(key=lambda run: -run["changed"])
                self._read_at = time.monotonic()
            return self._runs


def _runs_below(folder: Path, depth: int = 0) -> list[Path]:
    if is_run(folder):
        return [folder]
    if depth >= MAX_DEPTH:
        return []
    found: list[Path] = []
    for each in sorted(folder.iterdir()):
        if each.is_dir() and not each.is_symlink() and not each.name.startswith("."):
            found += _runs_below(each, depth + 1)
        if len(found) >= MAX_RUNS:
            break
    return found[:MAX_RUNS]


def _without_folder(root: Path) -> list[dict[str, Any]]:
    """Runs of sweeps that failed before they had a folder."""
    places = [f"{'*/' * depth}{FAILURES}/*.json" for depth in range(MAX_DEPTH - 1)]
    notes = itertools.islice((each for place in places for each in root.glob(place)), MAX_RUNS)
    return [line for note in notes if (line := _failed_at_once(note, root)) is not None]


def _run(path: Path, root: Path) -> dict[str, Any]:
    from driftwise.runs.append_log import Journal

    line: dict[str, Any] = {"name": str(path.relative_to(root)), "points": [], "settings": ""}
    try:
        config = read_config(path)
        line["settings"] = " ".join(
            str(config.get(name)) for name in ("benchmark", "method", "adaptation", "detector")
        )
        line["is_live"] = "keeper" in config
        for record in Journal(path / RECORDS).lines():
            accuracy = (record or {}).get("scores", {}).get("accuracy") or []
            known = [each for each in accuracy if each is not None]
            if known:
                line["points"].append(round(sum(known) / len(known), 3))
        line["changed"] = max(each.stat().st_mtime for each in path.iterdir())
    except (UserError, OSError, RuntimeError, ValueError, AttributeError) as error:
        return {**line, "state": "unreadable", "note": str(error)[:200], "changed": 0.0}
    if is_finished(path):
        return {**line, "state": "done"}
    if is_busy(path):
        return {**line, "state": "running"}
    failure = _failure_of(path.parent.parent / FAILURES / f"{path.name}.json")
    return {**line, "state": "stopped"} if failure is None else {**line, **failure}


def _failure_of(note: Path) -> dict[str, Any] | None:
    """What a sweep has noted about a run that failed; None: nothing."""
    try:
        last = (read_object(note) or {})["attempts"][-1]
        return {"state": "failed", "note": str(last["error"])[:200]}
    except (UserError, OSError, LookupError, TypeError):
        return None


def _failed_at_once(note: Path, root: Path) -> dict[str, Any] | None:
    """A run of a sweep that failed before it had a folder; None: it has one."""
    folder = note.parent.parent / RUNS / note.stem
    failure = _failure_of(note)
    if failure is None or is_run(folder):
        return None
    changed = note.stat().st_mtime
    name = str(folder.relative_to(root))
    return {"name": name, "points": [], "settings": "", "changed": changed, **failure}
