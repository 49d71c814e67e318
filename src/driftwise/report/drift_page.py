"""The page and the sentences of `driftwise detect`, from its report as JSON and PNG files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from driftwise.report.cells import MOST_NAMED
from driftwise.report.markup import data_uri, render
from driftwise.report.saved_run import clean, few
from driftwise.report.table import Head, Item, Table
from driftwise.report.vectors import axes_words, drawing, feature_table
from driftwise.report.words import IMAGE_WORDS, LEAST_SHIFT, frequency_words, plural, share_interval

if TYPE_CHECKING:
    from driftwise.report.facets import RenderedFigure

HEADS = (
    Head(title="class", meaning="The name, by which the two sides are matched.", is_name=True),
    Head(
        title="verdict",
        meaning="New and missing classes are on one side only: their drift cannot be tested.",
        is_name=True,
    ),
    Head(
        title="kind",
        meaning="What kind of change it is: drift (the old concept is gone), new mode (a new one beside"
        " it), new class, corrupted, mix (other proportions of classes).",
        is_name=True,
    ),
    Head(
        title="p-value",
        meaning="How often two samples of one distribution would differ as much.",
    ),
    Head(
        title="AUC",
        meaning="Effect size: how often a linear classifier that was trained on neither ranks a"
        " current sample above a reference sample; at 0.5 or less it cannot distinguish the two"
        " sides, at 1 it always does.",
    ),
    Head(
        title="KS gap",
        meaning="Effect size: largest difference between the two distributions of the entropy of"
        " the encoder's predictions, 0 to 1.",
    ),
    Head(
        title="fraction drifted",
        meaning="Of a drifted class, the estimated fraction of current samples that have drifted,"
        " with its standard error; where the drift is weak, it is too small.",
    ),
    Head(
        title="reference",
        meaning="Samples on the reference side: how many are compared, of how many in all. Copies of"
        " an image count once, and of very many samples some are drawn at random.",
    ),
    Head(title="current", meaning="Samples on the current side, likewise."),
)
CHANGED = Head(
    title="features changed",
    meaning="Features whose change alone is significant, and the ones that changed most.",
)
"""stands in place of the KS gap where samples are vectors"""


@dataclass(frozen=True, kw_only=True)
class Example:
    """An image to show."""

    name: str
    content: bytes
    """of a PNG file, or of a JPEG file where the image had to be shrunk"""
    is_photo: bool = False
    """whether it was shrunk; else its pixels stay visible when it is enlarged"""


@dataclass(frozen=True, kw_only=True)
class Examples:
    """The images of one class in which the two sides differ most, the strongest first."""

    name: str
    reference: Sequence[Example]
    current: Sequence[Example]


def headline(report: Mapping[str, Any]) -> str:
    """What was found, and which classes could not be tested, in one line.

    >>> headline({"classes": [{"name": "cat", "verdict": "drifted"}, {"name": "dog", "verdict":
    ... "same"}, {"name": "cow", "verdict": "new"}]})
    '1 of 2 tested classes has drifted: cat (new: cow)'
    >>> headline({"classes": [{"name": "all samples", "verdict": "drifted"}]})
    'drift found in all samples together'
    """
    names = _names(report)
    others = [
        f"{verdict}: {_named(names[verdict])}"
        for verdict in ("not testable", "new", "missing")
        if verdict in names
    ]
    return clean(f"{_finding(report)} ({'; '.join(others)})" if others else _finding(report))


def _finding(report: Mapping[str, Any]) -> str:
    names = _names(report)
    if _is_whole(report) and names.keys() <= {"drifted", "same"}:
        return (
            f"{'drift found' if 'drifted' in names else 'no drift found'} in all samples together"
        )
    drifted = names.get("drifted", [])
    num_tested = len(drifted) + len(names.get("same", []))
    classes = "class" if num_tested == 1 else "classes"
    if not num_tested:
        return "no class could be tested"
    if not drifted:
        return f"no drift found in {num_tested} tested {classes}"
    have = "has" if len(drifted) == 1 else "have"
    return f"{len(drifted)} of {num_tested} tested {classes} {have} drifted: {_named(drifted)}"


def _is_whole(report: Mapping[str, Any]) -> bool:
    """Whether samples without labels were compared, as the one class that readers make of them."""
    return [each["name"] for each in report["classes"]] == ["all samples"]


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


def encoder_line(report: Mapping[str, Any]) -> str:
    """Which encoder was used, and what it cannot see.

    >>> encoder_line({"encoder": "mine", "blind_to": None})
    'encoder: mine'
    """
    limits = report.get("blind_to")
    return f"encoder: {report['encoder']}" + (f" ({limits})" if limits else "")


def is_vectors(report: Mapping[str, Any]) -> bool:
    """Whether feature vectors were compared, not images."""
    return report.get("scaling") is not None


def features_title(report: Mapping[str, Any]) -> str:
    """What the table of features is about."""
    over = "the drifted classes" if report["drifted"] else "all tested classes; none has drifted"
    return f"features that changed most (mean over {over})"


def remarks(report: Mapping[str, Any]) -> list[str]:
    """What the numbers do not show, each in one line."""
    classes = report["classes"]
    lines = [
        f"{each['name']} could not be tested: {each['reason']}"
        for each in classes
        if each["reason"] is not None
    ]
    if others := report.get("not_compared"):
        lines.append(f"features that only the current side has, not compared: {_named(others)}")
    for side in ("reference", "current"):
        if copies := _counted(classes, f"num_copies_{side}"):
            lines.append(f"copies of compared {side} images, which count once: {copies}")
    if shared := _counted(classes, "num_shared"):
        what = "samples" if is_vectors(report) else "images"
        lines.append(
            f"compared reference {what} that are on the current side too, which makes drift seem"
            f" smaller: {shared}"
        )
    return [clean(line) for line in lines]


def _counted(classes: Sequence[Mapping[str, Any]], key: str) -> str:
    """A sum over classes and its parts; empty where there is none.

    >>> _counted([{"name": "cat", "n": 3}, {"name": "dog", "n": 0}, {"name": "cow", "n": 4}], "n")
    '7 (cat: 3, cow: 4)'
    """
    parts = {each["name"]: each[key] for each in classes if each[key]}
    listed = _named([f"{name}: {count:,}" for name, count in parts.items()])
    return f"{sum(parts.values()):,} ({listed})" if parts else ""


def measured_false_alarms(report: Mapping[str, Any]) -> str:
    """The false alarms that the self-check measured, in one line.

    >>> measured_false_alarms({"self_check": {"alarms": 0, "checks": 0}})
    'self-check: no class of the reference has samples enough to be cut into halves.'
    """
    found = report["self_check"]
    alarms, checks = found["alarms"], found["checks"]
    if not checks:
        return "self-check: no class of the reference has samples enough to be cut into halves."
    low, high = share_interval(alarms, checks)
    measured = f"{alarms / checks:.1%}, 95 % interval {low:.1%} to {high:.1%}"
    if report["correction"] in ("holm", "bonferroni"):
        measured += f"; promised: at most {100 * report['level']:g}%"
    fewest, most = found["half_rows"]
    noun = "samples" if is_vectors(report) else "images"
    images = f"{most} {noun}" if fewest == most else f"{fewest} to {most} {noun}"
    classes = "1 class" if found["num_classes"] == 1 else f"{found['num_classes']} classes"
    return (
        "self-check: the reference cut at random into two halves and compared,"
        f" {plural(checks, 'time')} ({classes}, {images} in a half); drift, which cannot be there,"
        f" was found {plural(alarms, 'time')} ({measured}). This measures false alarms only, not"
        " power: the fewer the samples, the larger a drift must be to be found."
    )


def drift_table(report: Mapping[str, Any]) -> Table:
    """One row per class."""
    vectors = is_vectors(report)
    heads = [CHANGED if vectors and head.title == "KS gap" else head for head in HEADS]
    rows = [
        [
            Item(name := clean(each["name"]), name),
            Item(verdict := each["verdict"], verdict, verdict if verdict == "drifted" else ""),
            Item(kind := _kind(each), kind),
            Item(_number(each["p_value"], ".2g")),
            Item(_number(each["auc"], ".2f")),
            Item(text := _changed(each), text) if vectors else Item(_number(each["ks_gap"], ".2f")),
            Item(_fraction(each)),
            Item(_count(each["num_kept_reference"], each["num_reference"])),
            Item(_count(each["num_kept_current"], each["num_current"])),
        ]
        for each in report["classes"]
    ]
    return Table(heads=heads, rows=rows)


def build_drift_page(
    report: Mapping[str, Any],
    examples: Sequence[Examples],
    figures: Sequence[RenderedFigure] = (),
    *,
    above: str = "",
) -> str:
    """The page.

    Args:
        report: what was found; it also names what was compared, `reference` and `current`
        examples: images to show
        figures: the charts of the report
        above: the address of the page over all periods, if this is one of several
    """
    by_name = {each["name"]: each for each in report["classes"]}
    features = feature_table(report["features"])
    sections = {
        "verdicts": "Verdicts",
        **({"charts": "Charts"} if figures else {}),
        **({"features": "Features", "samples": "Samples before and after"} if features else {}),
        **({"images": "The images that differ most"} if examples else {}),
    }
    return render(
        "drift.html",
        title=_capital(_finding(report)),
        above=above,
        manner="as a whole, without classes" if _is_whole(report) else "class by class",
        sections=list(sections.items()),
        causes=causes(report),
        figures=[_figure(each) for each in figures],
        reference=report["reference"],
        current=report["current"],
        happened=_capital(happened(report)),
        remarks=remarks(report),
        promise=_promise(report),
        table=drift_table(report),
        examples=[
            {
                "name": each.name,
                "about": "; ".join(_changes(by_name[each.name].get("image_statistics", ()))),
                "reference": _tiles(each.reference),
                "current": _tiles(each.current),
            }
            for each in examples
        ],
        features=features,
        features_title=_capital(features_title(report)),
        axes="" if report["axes"] is None else axes_words(report["axes"]),
        views=[
            {
                "name": each["name"],
                "about": f"{each['verdict']}; features changed: {_changed(each)}",
                "drawing": drawing(each["view"]),
            }
            for each in report["classes"]
            if each["view"] is not None
        ],
    )


def _kind(each: Mapping[str, Any]) -> str:
    """The kind of a class's change; nothing where the verdict says it all."""
    kind = each.get("kind")
    return "" if kind in (None, "none", "not testable") else str(kind)


def happened(report: Mapping[str, Any]) -> str:
    """What happened to which classes, and what to do about it, in one line; empty: nothing.

    >>> happened({"kind": "drift", "action": "realign", "classes": [{"name": "cat", "kind": "drift",
    ... "action": "realign"}, {"name": "cow", "kind": "new mode", "action": "extend"}]})
    'what happened: drift in class cat (to do: realign), new mode in class cow (to do: extend)'
    """
    kind, action = report.get("kind"), report.get("action")
    if kind in (None, "none") or not action:
        return ""
    names: dict[str, list[str]] = {str(kind): []}
    actions = {str(kind): str(action)}
    for each in report["classes"]:
        if _kind(each):
            names.setdefault(_kind(each), []).append(clean(each["name"]))
            actions.setdefault(_kind(each), str(each["action"]))
    found = []
    for kind, some in names.items():
        where = f" in class{'es' if len(some) > 1 else ''} {_named(some)}" if some else ""
        found.append(f"{kind}{where} (to do: {actions[kind]})")
    return f"what happened: {', '.join(found)}"


def build_periods_page(
    report: Mapping[str, Any], addresses: Sequence[str], figure: RenderedFigure
) -> str:
    """The page over several periods; `addresses` lead to the page of each."""
    periods = report["periods"]
    drifted = [period for period in periods if period["drifted"]]
    title = (
        f"Drift in {len(drifted)} of {plural(len(periods), 'period')}"
        if drifted
        else f"No drift found in {plural(len(periods), 'period')}"
    )
    return render(
        "periods.html",
        title=title,
        reference=report["reference"],
        figure=_figure(figure),
        promise=f"The promised chance of a false alarm in any class of any period is "
        f"{report['level']:g}, shared equally: {periods[0]['level']:.3g} for each period.",
        periods=[
            {
                "name": period["name"],
                "address": address,
                "drifted": period["drifted"],
                "found": _capital(headline(period)),
                "count": sum(each["num_current"] for each in period["classes"]),
            }
            for period, address in zip(periods, addresses, strict=True)
        ],
    )


def _figure(image: RenderedFigure) -> dict[str, str]:
    return {
        "title": image.title,
        "alt": image.alt,
        "caption": image.caption,
        "source": data_uri(image.svg, "image/svg+xml"),
    }


LEAST_DISTANCE = 0.3
"""KS distance from which a change is named as a probable cause."""
DISJOINT = 0.999
"""KS distance from which two sides are said to have no value in common."""


def causes(report: Mapping[str, Any]) -> list[str]:
    """Probable causes of the drift, in plain words, the strongest first; none without drift."""
    if not report["drifted"]:
        return []
    lines = []
    if words := _changes(report.get("image_statistics", ())):
        lines.append(f"Probable causes in the drifted classes: {'; '.join(words)}.")
    strong = [each for each in report["features"] if each["ks"] >= LEAST_DISTANCE][:5]
    if strong:
        names = ", ".join(clean(each["name"]) for each in strong)
        lines.append(f"In the drifted classes, these features changed most: {names}.")
    found_in = {each["verdict"] for each in report["classes"]} & {"drifted", "same"}
    apart = [clean(each["name"]) for each in strong if each["ks"] >= DISJOINT]
    if apart and found_in == {"drifted"} and len(report["classes"]) > 1:
        lines.append(
            f"{', '.join(apart)}: no value in common on the two sides, in any class. Times and ids are no"
            f" features: leave them out with --leave-out {','.join(apart)}"
        )
    if (found := report.get("frequencies")) and found["p_value"] <= report["level"]:
        lines.append(frequency_words(found, report["level"]))
    return lines


def _changes(statistics: Sequence[Mapping[str, Any]]) -> list[str]:
    """What statistics of images changed, in words.

    >>> _changes([{"name": "brightness", "ks": 0.9, "shift": -2.04, "spread": 1.0}])
    ['darker (brightness -2.0 SD)']
    """
    return [
        f"{IMAGE_WORDS[each['name']][each['shift'] > 0]} ({each['name']} {each['shift']:+.1f} SD)"
        for each in statistics
        if each["ks"] >= LEAST_DISTANCE and abs(each["shift"] or 0.0) >= LEAST_SHIFT
    ]


def _changed(each: Mapping[str, Any]) -> str:
    """How many features of a class changed, and which most."""
    count = each.get("num_features_changed")
    if count is None:
        return ""
    names = [clean(feature["name"]) for feature in each["features"][: min(count, 3)]]
    more = f": {', '.join(names)}{' …' if count > 3 else ''}" if names else ""
    return f"{count}{more}"


def _promise(report: Mapping[str, Any]) -> str:
    promises = {
        "none": "the promised chance of a false alarm is {level:g} for each class alone",
        "benjamini-hochberg": "at most {level:.0%} of all alarms are expected to be false",
    }
    any_class = "the promised chance of a false alarm in any class at all is {level:g}"
    promise = promises.get(report["correction"], any_class).format(level=report["level"])
    sentences = [
        f"Detector {report['detector']}, correction {report['correction']}: {promise}.",
        f"Here: {rule(report)}.",
        f"{_capital(encoder_line(report))}.",
    ]
    if is_vectors(report):
        sentences.append(f"Scaling {report['scaling']}.")
    if report.get("self_check") is not None:
        sentences.append(_capital(measured_false_alarms(report)))
    return " ".join(sentences)


def _tiles(images: Sequence[Example]) -> list[dict[str, object]]:
    return [
        {
            "name": each.name,
            "is_photo": each.is_photo,
            "source": data_uri(each.content, "image/jpeg" if each.is_photo else "image/png"),
        }
        for each in images
    ]


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _named(names: Sequence[str]) -> str:
    return ", ".join(few(names, MOST_NAMED))


def _count(compared: int, total: int) -> str:
    return f"{total:,}" if compared == total else f"{compared:,} of {total:,}"


def _fraction(each: Mapping[str, Any]) -> str:
    share = each.get("share")
    return "" if share is None else f"{share:.0%} ± {each['share_error']:.0%}"


def _number(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)
