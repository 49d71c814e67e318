"""The page of a comparison of two sets of images: a table, and what the verdicts rest on.

It is made from plain data, the report as JSON says it and PNG files, and asks nobody for anything.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from typing import Any

from driftwise.report.run import clean
from driftwise.report.words import plural, share_interval

COLUMNS: Mapping[str, str] = {
    "class": "The name, which is what the two sides are matched by.",
    "verdict": "New and missing classes are on one side only: nothing is said about their drift.",
    "p-value": "How often two samples of one distribution would differ as much.",
    "AUC": "Effect size: how often a linear classifier that has seen neither ranks a current"
    " image above a reference image; at 0.5 or less the two sides cannot be told apart, at 1"
    " without fail.",
    "KS gap": "Effect size: largest difference between the two distributions of the entropy of the"
    " encoder's predictions, 0 to 1.",
    "moved": "Of a drifted class, the estimated share of current images that look new, with its"
    " standard error; where the change is faint, it comes out too small.",
    "reference": "Images on the reference side: how many are compared, of how many that came."
    " Copies of an image count once, and of very many a random sample is taken.",
    "current": "Images on the current side, likewise.",
}
"""What the table shows, and what that means."""

NUM_NAMES = 2
"""columns at the left that hold words"""

_STYLE = """
thead th { padding: 7px 6px; }
.note.facts { margin-top: 14px; }
td.drifted { color: #b34700; font-weight: 650; }
.pair { display: grid; grid-template-columns: auto 1fr; gap: 6px 14px; align-items: center; margin: 0 0 28px; }
.pair h3 { grid-column: 1 / -1; margin: 0; }
.pair p { margin: 0; color: var(--muted); font-size: 14px; }
.tiles { display: flex; flex-wrap: wrap; gap: 4px; }
.tiles img { display: block; border: 1px solid var(--line); image-rendering: pixelated; }
"""  # noqa: E501


@dataclass(frozen=True, kw_only=True)
class Tile:
    """An image and what it is called."""

    png: bytes
    name: str


@dataclass(frozen=True, kw_only=True)
class Telling:
    """The images of one class that tell most, the most telling first."""

    name: str
    reference: Sequence[Tile]
    current: Sequence[Tile]


def headline(report: Mapping[str, Any]) -> str:
    """What was found, and about which classes nothing can be said, in one line.

    >>> headline({"classes": [{"name": "cat", "verdict": "drifted"}, {"name": "dog", "verdict":
    ... "same"}, {"name": "cow", "verdict": "new"}]})
    '1 of 2 tested classes has drifted: cat (new: cow)'
    """
    names = _names(report)
    others = [
        f"{verdict}: {_few(names[verdict])}"
        for verdict in ("not testable", "new", "missing")
        if verdict in names
    ]
    return clean(f"{_finding(report)} ({'; '.join(others)})" if others else _finding(report))


def _finding(report: Mapping[str, Any]) -> str:
    names = _names(report)
    drifted = names.get("drifted", [])
    num_tested = len(drifted) + len(names.get("same", []))
    classes = "class" if num_tested == 1 else "classes"
    if not num_tested:
        return "no class could be tested"
    if not drifted:
        return f"no drift found in {num_tested} tested {classes}"
    have = "has" if len(drifted) == 1 else "have"
    return f"{len(drifted)} of {num_tested} tested {classes} {have} drifted: {_few(drifted)}"


def _names(report: Mapping[str, Any]) -> dict[str, list[str]]:
    """The classes by verdict."""
    names: dict[str, list[str]] = {}
    for each in report["classes"]:
        names.setdefault(each["verdict"], []).append(each["name"])
    return names


def rule(report: Mapping[str, Any]) -> str:
    """When a class is called drifted.

    >>> rule({"level": 0.05, "correction": "holm", "classes": [{"threshold": 0.025}]})
    'drifted where the p-value is at most 0.025 (level 0.05, holm)'
    """
    promised = f"level {report['level']:g}, {report['correction']}"
    thresholds = [each["threshold"] for each in report["classes"] if each["threshold"] is not None]
    if not thresholds:
        return promised
    return f"drifted where the p-value is at most {thresholds[0]:.3g} ({promised})"


def seen_by(report: Mapping[str, Any]) -> str:
    """Which encoder answered, and what it cannot see.

    >>> seen_by({"encoder": "mine", "blind_to": None})
    'encoder: mine'
    """
    limits = report.get("blind_to")
    return f"encoder: {report['encoder']}" + (f" ({limits})" if limits else "")


def remarks(report: Mapping[str, Any]) -> list[str]:
    """What the numbers do not tell by themselves, each in one line."""
    classes = report["classes"]
    lines = [
        f"{each['name']} could not be tested: {each['reason']}"
        for each in classes
        if each["reason"] is not None
    ]
    for side in ("reference", "current"):
        if copies := _counted(classes, f"num_copies_{side}"):
            lines.append(f"copies of compared {side} images, which count once: {copies}")
    if shared := _counted(classes, "num_shared"):
        lines.append(
            "compared reference images that are on the current side too, which makes drift look"
            f" smaller: {shared}"
        )
    return [clean(line) for line in lines]


def _counted(classes: Sequence[Mapping[str, Any]], key: str) -> str:
    """A sum over classes and its parts; empty where there is none.

    >>> _counted([{"name": "cat", "n": 3}, {"name": "dog", "n": 0}, {"name": "cow", "n": 4}], "n")
    '7 (cat: 3, cow: 4)'
    """
    parts = {each["name"]: each[key] for each in classes if each[key]}
    few = _few([f"{name}: {count:,}" for name, count in parts.items()])
    return f"{sum(parts.values()):,} ({few})" if parts else ""


def measured_false_alarms(report: Mapping[str, Any]) -> str:
    """What the self-check measured, and how, in one line.

    >>> measured_false_alarms({"self_check": {"alarms": 0, "checks": 0}})
    'self-check: no class of the reference has images enough to be cut into halves.'
    """
    found = report["self_check"]
    alarms, checks = found["alarms"], found["checks"]
    if not checks:
        return "self-check: no class of the reference has images enough to be cut into halves."
    low, high = share_interval(alarms, checks)
    measured = f"{alarms / checks:.1%}, 95 % interval {low:.1%} to {high:.1%}"
    if report["correction"] in ("holm", "bonferroni"):
        measured += f"; promised: at most {100 * report['level']:g}%"
    fewest, most = found["half_rows"]
    rows = f"{most} images" if fewest == most else f"{fewest} to {most} images"
    classes = "1 class" if found["num_classes"] == 1 else f"{found['num_classes']} classes"
    return (
        "self-check: the reference cut at random into two halves and compared,"
        f" {plural(checks, 'time')} ({classes}, {rows} in a half); drift, which cannot be there,"
        f" was found {plural(alarms, 'time')} ({measured}). This tells of false alarms only, not of"
        " what is found: the fewer the images, the larger must a drift be."
    )


def table_rows(report: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """One row per class, as text, under `COLUMNS`."""
    return [
        (
            clean(each["name"]),
            each["verdict"],
            _number(each["p_value"], ".2g"),
            _number(each["auc"], ".2f"),
            _number(each["ks_gap"], ".2f"),
            _share(each),
            _count(each["num_kept_reference"], each["num_reference"]),
            _count(each["num_kept_current"], each["num_current"]),
        )
        for each in report["classes"]
    ]


def build_drift_page(report: Mapping[str, Any], telling: Sequence[Telling]) -> str:
    """The page; `report` also says what was compared: `reference` and `current`."""
    title = _finding(report)
    title = title[:1].upper() + title[1:]
    notes = "".join(f"<li>{escape(line)}</li>" for line in remarks(report))
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<title>{_text(title)}</title>
<style>{_common_style()}{_STYLE}</style>
</head>
<body>
<header>
<p class="brand">driftwise detect</p>
<h1>{_text(title)}</h1>
<p class="summary">{_text(report["current"])} compared with {_text(report["reference"])}, class by class.</p>
{f'<div class="warnings"><ul>{notes}</ul></div>' if notes else ""}
</header>
<main>
<h2>Verdicts</h2>
<p class="note">{_text(_promise(report))}</p>
{_html_table(report)}
<ul class="facts note">{"".join(f"<li>{escape(name)}: {escape(text)}</li>" for name, text in COLUMNS.items())}</ul>
{_html_telling(telling)}
</main>
<footer>Made by driftwise. The same in numbers: report.json, beside this page.</footer>
</body>
</html>
"""  # noqa: E501


def _promise(report: Mapping[str, Any]) -> str:
    promises = {
        "none": "the promised chance of a false alarm is {level:g} for each class alone",
        "benjamini-hochberg": "at most {level:.0%} of all alarms are expected to be false",
    }
    any_class = "the promised chance of a false alarm in any class at all is {level:g}"
    promise = promises.get(report["correction"], any_class).format(level=report["level"])
    words = (
        f"Detector {report['detector']}, correction {report['correction']}: {promise}."
        f" Here: {rule(report)}. {seen_by(report)[:1].upper()}{seen_by(report)[1:]}."
    )
    if report.get("self_check") is None:
        return words
    measured = measured_false_alarms(report)
    return f"{words} {measured[:1].upper()}{measured[1:]}"


def _html_table(report: Mapping[str, Any]) -> str:
    kinds = ["name" if place < NUM_NAMES else "" for place in range(len(COLUMNS))]
    head = "".join(
        f'<th scope="col" class="{kind}" title="{escape(meaning)}">{escape(name)}</th>'
        for kind, (name, meaning) in zip(kinds, COLUMNS.items(), strict=True)
    )
    body = []
    for row in table_rows(report):
        cells = [
            f'<td class="{kind}{" drifted" if cell == row[1] == "drifted" else ""}">'
            f"{escape(cell)}</td>"
            for kind, cell in zip(kinds, row, strict=True)
        ]
        body.append(f"<tr>{''.join(cells)}</tr>")
    return (
        '<div class="scroll" tabindex="0" role="region" aria-label="Verdicts"><table><thead>'
        f"<tr>{head}</tr></thead><tbody>\n" + "\n".join(body) + "\n</tbody></table></div>"
    )


def _html_telling(telling: Sequence[Telling]) -> str:
    if not telling:
        return ""
    sections = "\n".join(
        f'<section class="pair"><h3>{_text(each.name)}</h3>'
        f'<p>reference</p><div class="tiles">{_images(each.reference)}</div>'
        f'<p>current</p><div class="tiles">{_images(each.current)}</div></section>'
        for each in telling
    )
    return (
        '<h2>The most telling images</h2>\n<p class="note">Of each class those that a classifier,'
        " which had not seen them, found least like the other side, the most telling first. Point"
        f" at an image to read its name.</p>\n{sections}"
    )


def _images(tiles: Sequence[Tile]) -> str:
    return "".join(
        f'<img alt="{_text(tile.name)}" title="{_text(tile.name)}"'
        f' src="data:image/png;base64,{base64.b64encode(tile.png).decode()}">'
        for tile in tiles
    )


def _common_style() -> str:
    """The look of the page of runs, which stands in one place."""
    page = files("driftwise.report").joinpath("page.html").read_text("utf-8")
    return page.partition("<style>")[2].partition("</style>")[0]


def _text(text: str) -> str:
    return escape(clean(text))


def _few(names: Sequence[str], most: int = 12) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _count(compared: int, came: int) -> str:
    return f"{came:,}" if compared == came else f"{compared:,} of {came:,}"


def _share(each: Mapping[str, Any]) -> str:
    share = each.get("share")
    return "" if share is None else f"{share:.0%} ± {each['share_error']:.0%}"


def _number(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)
