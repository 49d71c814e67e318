"""Puts the committed results of the paper's tables into docs/explanations/results.md, and draws its figure.

    python benchmarks/results_page.py [FOLDER]        (default: results/tables)

The text of the page is written by hand; what stands between its marks is replaced.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from driftwise.report import style
from driftwise.report.sweeps import Sweep, read_sweep
from driftwise.reproduce.beside_paper import STRATEGIES, Beside, beside, in_words
from driftwise.reproduce.claims import Claim, claims
from driftwise.reproduce.draw import published_faa
from driftwise.reproduce.evidence import FAILS, HOLDS
from driftwise.reproduce.figures import draw_paper_figures
from driftwise.reproduce.grids import METHODS, TABLES, TARGETS
from driftwise.reproduce.leaderboard import board
from driftwise.reproduce.paper_table import TableCell, paper_table
from driftwise.reproduce.places import grouped
from driftwise.reproduce.published import find

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "results" / "tables"
PAGE = ROOT / "docs" / "explanations" / "results.md"
FIGURE = ROOT / "docs" / "images" / "results-scatter.png"
NAMES = {
    "table1": "Table 1, Fashion-MNIST",
    "table2": "Table 2, CIFAR-10",
    "table3": "Table 3, CIFAR-100",
    "table4": "Table 4, Tiny-ImageNet",
}
SHOWN = (*STRATEGIES, "amr-plus")
IMAGES = FIGURE.parent
FIGURES = {
    "results-gain": ("table1-tables-fast", "gain-fmnist-cd"),
    "results-cost": ("table1-tables-fast", "radar-fmnist-cd-d1"),
    "results-severity": ("severity-tables-fast", "severity-cifar10-cd-er-b5000-d2"),
}
"""name of the image -> sweep and figure"""
DETECTED = ("table1-tables-fast", "table1-tables-published-detector")
"""Table 1 with the usual and with the published detector"""


def table_lines(sweep: Sweep) -> list[str]:
    """Every cell, here beside the paper."""
    table = paper_table(sweep)
    columns = [(0, "vanilla")] + [(d, a) for d in table.drifts if d for a in SHOWN]
    heads = ["no drift" if not d else f"{a}, {d} drift{'s' if d != 1 else ''}" for d, a in columns]
    lines = [
        f"| buffer | method | {' | '.join(heads)} |",
        "|---" * (2 + len(columns)) + "|",
    ]
    rows = grouped(table.cells, lambda c: (c.place["buffer_size"], c.place["method"]))
    for (buffer, method), cells in rows.items():
        by = {(c.place["num_drifts"], c.place["adaptation"]): c for c in cells}
        lines.append(f"| {buffer} | {method} | {' | '.join(words(by.get(c)) for c in columns)} |")
    return lines


def words(cell: TableCell | None) -> str:
    """Accuracy here, with its spread over seeds, and the paper's in brackets."""
    if cell is None:
        return ""
    here = "–" if cell.faa is None else f"{cell.faa.mean:.1f}"
    if cell.faa is not None and cell.faa.sd is not None:
        here += f" ± {cell.faa.sd:.1f}"
    return here if cell.published is None else f"{here} ({cell.published.faa:.1f})"


def summary_lines(found: dict[str, tuple[Sweep, Beside]]) -> list[str]:
    """One line per table: how much is done, and what of the paper's shape is kept."""
    lines = [
        "| table | cells done | seeds | drifts found | correlation with the paper | amr above vanilla | "
        "amr above fr (paper) | order of all three kept | recovery by amr, points (95 % over groups) | "
        "the paper's |",
        "|---" * 10 + "|",
    ]
    for name, (sweep, both) in found.items():
        asked = [cell for cell in paper_table(sweep).cells if cell.seeds_asked]
        seeds = sorted({cell.num_seeds for cell in both.cells})
        r = both.correlation
        gains = both.recovery()
        groups = both.groups
        pairs = both.groups_with("vanilla", "amr")
        above = sum(_faa(pair["amr"]) > _faa(pair["vanilla"]) for pair in pairs)
        level = sum(_faa(group["amr"]) >= _faa(group["fr"]) for group in groups)
        paper = sum(
            g["amr"].published.faa >= g["fr"].published.faa
            for g in groups
            if g["amr"].published is not None and g["fr"].published is not None
        )
        kept, of = both.same_order(*STRATEGIES)
        lines.append(
            f"| {NAMES[name]} | {len(both.cells)} of {len(asked)} | "
            f"{'–' if not seeds else ' to '.join(map(str, dict.fromkeys((seeds[0], seeds[-1]))))} | "
            f"{' of '.join(f'{count:,}' for count in found_drifts(both))} | "
            f"{'–' if r is None else f'{r:.2f}'} ({len(both.pairs)} cells) | "
            f"{above} of {len(pairs)} | {f'{level} ({paper}) of {of}' if of else '–'} | "
            f"{f'{kept} of {of}' if of else '–'} | "
            f"{in_words([here for _, here in gains]) if gains else '–'} | "
            f"{in_words([theirs for theirs, _ in gains]) if gains else '–'} |"
        )
    return lines


def found_drifts(both: Beside) -> tuple[int, int]:
    """How many drifts were found, of how many, over all runs."""
    runs = [run for cell in both.cells if cell.measured for run in cell.measured.runs]
    found, of = (
        sum(int(run.detection.get(key) or 0) for run in runs)
        for key in ("num_detected", "num_drifts")
    )
    return found, of


def _faa(cell: TableCell) -> float:
    assert cell.faa is not None
    return cell.faa.mean


def recovery_lines(found: dict[str, tuple[Sweep, Beside]]) -> list[str]:
    """What realignment gains above vanilla, here and in the paper, by method."""
    lines = [f"| table | {' | '.join(METHODS)} |", "|---" * (1 + len(METHODS)) + "|"]
    for name, (_, both) in found.items():
        cells = []
        for method in METHODS:
            gains = both.of_method(method).recovery()
            here, paper = (_mean([gain[side] for gain in gains]) for side in (1, 0))
            cells.append(f"{here:+.1f} ({paper:+.1f}; {len(gains)})" if gains else "–")
        lines.append(f"| {NAMES[name]} | {' | '.join(cells)} |")
    return lines


def cost_lines(found: dict[str, tuple[Sweep, Beside]]) -> list[str]:
    """Labels and FLOPs of each strategy, absolute, per run."""
    lines = [
        "| table | buffer | labels: fr | labels: amr | labels: amr-plus | FLOPs, amr / vanilla | "
        "fr / vanilla | amr-plus / vanilla |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, (_, both) in found.items():
        for buffer, cells in grouped(
            (c for c in both.cells if c.place.get("num_drifts")), lambda c: c.place["buffer_size"]
        ).items():
            labels, flops = {}, {}
            for adaptation, some in grouped(cells, lambda c: str(c.place["adaptation"])).items():
                labels[adaptation] = _mean([c.labels.mean for c in some if c.labels is not None])
                costs = [c.stat(lambda run: run.cost(run.flops) or None) for c in some]
                flops[adaptation] = _mean([cost.mean for cost in costs if cost is not None])
            plain = flops.get("vanilla")
            asked = [f"{labels[a]:,.0f}" if a in labels else "–" for a in ("fr", "amr", "amr-plus")]
            times = [
                f"{flops[a] / plain:.2f}" if plain and a in flops else "–"
                for a in ("amr", "fr", "amr-plus")
            ]
            lines.append(f"| {NAMES[name]} | {buffer} | {' | '.join([*asked, *times])} |")
    return lines


def _mean(values: Sequence[float]) -> float:
    return sum(values) / max(1, len(values))


def claim_lines(found: Sequence[Claim]) -> list[str]:
    """Every claim with its verdict, and below them what each rests on."""
    lines = ["| the paper's text says | its own tables | here |", "|---|---|---|"]
    for number, claim in enumerate(found, 1):
        counts = set(re.findall(r"(\d+) seeds?\b", claim.measured))
        seeds = ", one seed" if counts == {"1"} and claim.holds in (HOLDS, FAILS) else ""
        lines.append(
            f"| {number}. {claim.text} | {claim.holds_published} | **{claim.holds}**{seeds} |"
        )
    lines += ["", "What was measured for each:", ""]
    return lines + [f"{number}. {claim.measured}." for number, claim in enumerate(found, 1)]


def plain_lines(found: dict[str, tuple[Sweep, Beside]], known: Sequence[Claim]) -> list[str]:
    """What came out, in sentences: the first thing on the page."""
    verdicts = {claim.key: claim.holds for claim in known}
    decided = sum(verdict in (HOLDS, FAILS) for verdict in verdicts.values())
    groups = [group for _, both in found.values() for group in both.groups]
    pairs = [pair for _, both in found.values() for pair in both.groups_with("vanilla", "amr")]
    better = sum(_faa(pair["amr"]) > _faa(pair["vanilla"]) for pair in pairs)
    gains = "; ".join(
        f"{NAMES[name].split(', ')[1]} {_mean([here for _, here in gains]):+.1f} "
        f"({_mean([paper for paper, _ in gains]):+.1f})"
        for name, (_, both) in found.items()
        if (gains := both.recovery())
    )
    gap = _mean([_faa(group["amr"]) - _faa(group["fr"]) for group in groups])
    flops = [ratio for group in groups if (ratio := _ratio(group, _flops)) is not None]
    labels = {
        buffer: math.exp(
            _mean([math.log(r) for group in some if (r := _ratio(group, _labels_of)) is not None])
        )
        for buffer, some in sorted(
            grouped(groups, lambda group: int(str(group["amr"].place["buffer_size"]))).items()
        )
    }
    times = ", ".join(f"{ratio:.1f} times with {buffer}" for buffer, ratio in labels.items())
    above = [
        (_faa(group["amr"]), no_drift)
        for _, both in found.values()
        for group in both.groups
        if (no_drift := _without_drift(both, group["amr"])) is not None
    ]
    beaten = sum(ours > theirs for ours, theirs in above)
    plus = "; ".join(
        f"{NAMES[name].split(', ')[1]} "
        + in_words([_faa(pair["amr-plus"]) - _faa(pair["amr"]) for pair in some])
        + f", {len(some)} groups"
        for name, (_, both) in found.items()
        if len(some := both.groups_with("amr", "amr-plus")) > 1
    )
    drifts = [found_drifts(both) for _, both in found.values()]
    seen, of = (sum(column) for column in zip(*drifts, strict=True))
    return [
        f"- **What realignment gives back.** `amr` ends above doing nothing in {better} of {len(pairs)} "
        f"groups; gain in points, mean over groups (in the paper): {gains}.",
        f"- **It is as accurate as full relearning: {_yes(verdicts['matches-relearning'])}.** `amr` - "
        f"`fr` is {gap:+.1f} points on average, over {len(groups)} groups.",
        "- **It asks for orders of magnitude fewer labels with every buffer: "
        f"{_yes(verdicts['fewer-labels'])}.** `fr` asks for {times} samples as many as `amr`.",
        f"- **It takes orders of magnitude less compute: {_yes(verdicts['less-compute'])}.** `fr` takes "
        f"{min(flops):.1f} to {max(flops):.1f} times the FLOPs: learning the new classes is most of the "
        "work of either.",
        "- **Larger buffers make drift worse without adaptation: "
        f"{_yes(verdicts['larger-buffers-hurt'])}**, by what drift costs, not by what is left.",
        "- **500 samples suffice for CIFAR-100, not for Tiny-ImageNet: "
        f"{_yes(verdicts['500-rows'])}.**",
        f"- **The backbone does not matter: {_yes(verdicts['any-backbone'])}.**",
        "- **On natural drift KS finds half of the drifted classes, MMD nearly all: "
        f"{_yes(verdicts['natural-drift'])}.**",
        f"- **No drift is not the ceiling.** `amr` ends above the run without drift in {beaten} of "
        f"{len(above)} groups (paper: 40 of 80), probably because drifted classes share one transform, "
        "which gives away that they are old ones.",
        "- **`amr-plus`, this project's own, beside `amr`**, in points "
        f"(95 % over groups): {plus}.",
        f"- {seen:,} of {of:,} drifts were found. Of the text's {len(verdicts)} claims, {decided} are "
        "decided.",
    ]


def _flops(cell: TableCell) -> float | None:
    cost = cell.stat(lambda run: run.cost(run.flops) or None)
    return None if cost is None else cost.mean


def _labels_of(cell: TableCell) -> float | None:
    return None if cell.labels is None else cell.labels.mean


def _ratio(
    group: Mapping[str, TableCell], cost: Callable[[TableCell], float | None]
) -> float | None:
    """What full relearning takes as a multiple of realignment."""
    fr, amr = cost(group["fr"]), cost(group["amr"])
    return fr / amr if fr and amr else None


def _yes(verdict: str) -> str:
    return {"holds": "yes", "does not hold": "no"}.get(verdict, verdict)


def _without_drift(both: Beside, cell: TableCell) -> float | None:
    """The accuracy of the same method and buffer without drift."""
    for other in both.cells:
        same = all(other.place[key] == cell.place[key] for key in ("method", "buffer_size"))
        if same and not other.place["num_drifts"]:
            return _faa(other)
    return None


def detection_lines(sweeps: Sequence[Sweep]) -> list[str]:
    """Table 1 with `amr` after the usual detector and after the published one, by buffer."""
    by_name = {sweep.name: sweep for sweep in sweeps}
    both = [by_name[name] for name in DETECTED if name in by_name]
    if len(both) < len(DETECTED):
        return ["Not measured yet."]
    usual, other = map(beside, both)
    lines = [
        "| buffer | cells | drifts found: usual, published detector | amr: usual | published detector | "
        "lost with it, points (95 % over cells) |",
        "|---" * 6 + "|",
    ]
    for buffer, cells in grouped(other.cells, lambda cell: cell.place["buffer_size"]).items():
        same = [
            _of_the_seeds_of(cell, next(c for c in usual.cells if c.place == cell.place))
            for cell in cells
        ]
        found = ", ".join(
            "{} of {}".format(*found_drifts(Beside(cells=some))) for some in (same, cells)
        )
        lost = [_faa(a) - _faa(b) for a, b in zip(same, cells, strict=True)]
        lines.append(
            f"| {buffer} | {len(cells)} | {found} | {_mean([*map(_faa, same)]):.1f} | "
            f"{_mean([*map(_faa, cells)]):.1f} | {in_words(lost)} |"
        )
    return lines


def _of_the_seeds_of(other: TableCell, cell: TableCell) -> TableCell:
    assert cell.measured is not None
    assert other.measured is not None
    seeds = {run.seed for run in other.measured.runs}
    runs = tuple(run for run in cell.measured.runs if run.seed in seeds)
    return dataclasses.replace(cell, measured=dataclasses.replace(cell.measured, runs=runs))


def ablation_lines() -> list[str]:
    """One setting changed at a time, on one cell."""
    file = ROOT / "results" / "ablations.json"
    if not file.exists():
        return ["Not measured yet."]
    lines = ["| changed | FAA, mean over seeds | difference (95 % interval) |", "|---|---|---|"]
    for name, each in json.loads(file.read_text()).items():
        low, high = each["interval"]
        words = f"{each['difference']:+.1f}"
        if low is not None and name != "as in the tables":
            words += f" ({low:+.1f} to {high:+.1f})"
        drifts = "; {} of {} drifts found".format(*each["found"]) if "found" in each else ""
        lines.append(f"| {name} | {each['mean']:.1f} ({len(each['faa'])}{drifts}) | {words} |")
    return lines


def validity_lines() -> list[str]:
    """Each table on the development seed: drifts found, accuracy beside the paper."""
    lines = [
        "| table | drifts | drifts found | no drift, share of the paper's, 500 and 5000 | "
        f"{' | '.join(STRATEGIES)} | valid |",
        "|---" * (5 + len(STRATEGIES)) + "|",
    ]
    for entry in json.loads((ROOT / "results" / "scale_validity.json").read_text())["tables"]:
        table, drifts = entry["table"], entry["num_drifts"]
        cells = []
        for adaptation in STRATEGIES:
            paper = find(
                benchmark=TARGETS[table].benchmarks[0],
                buffer_size=500,
                method="er",
                adaptation=adaptation,
                num_drifts=drifts,
            )
            assert paper is not None
            cells.append(f"{entry['faa'][adaptation]:.1f} ({paper.faa:.1f})")
        shares = ", ".join(
            f"{share:.0%}" for share in entry["share_of_published_without_drift"].values()
        )
        lines.append(
            f"| {NAMES[table]} | {drifts} | {entry['tpr']:.0%} | {shares} | {' | '.join(cells)} | "
            f"{'yes' if entry['valid'] else 'no'} |"
        )
    return lines


def draw(found: dict[str, tuple[Sweep, Beside]]) -> None:
    """Ours against published, a panel for each table; hollow: without drift."""
    styles = style.styles_of(STRATEGIES)
    with mpl.rc_context(style.RC):
        columns = min(2, len(found))
        rows = -(-len(found) // columns)
        figure = Figure(figsize=(3.1 * columns, 3.5 * rows), layout="constrained")
        panels = list(figure.subplots(rows, columns, squeeze=False).flat)
        for panel in panels[len(found) :]:
            panel.remove()
        for panel, (name, (_, both)) in zip(panels, found.items(), strict=False):
            ends = [min(map(min, both.pairs)), max(map(max, both.pairs))]
            panel.plot(ends, ends, color=style.FAINT, linewidth=1.2, zorder=0)
            for cell in both.cells:
                if cell.published is None:
                    continue
                look = styles[str(cell.place["adaptation"])]
                face = look.colour if cell.place["num_drifts"] else "white"
                panel.scatter(
                    *(cell.published.faa, _faa(cell)),
                    marker=look.marker,
                    s=24,
                    color=face,
                    edgecolors=look.colour,
                )
            r = both.correlation
            panel.set_title(NAMES[name] + ("" if r is None else f": r = {r:.2f}"))
            panel.set_xlabel("published FAA, %")
            panel.set_ylabel("here, %")
        shown = {**styles, "no drift": dataclasses.replace(styles["vanilla"], hollow=True)}
        handles = [
            Line2D([], [], linestyle="", marker=s.marker, color=s.colour, markerfacecolor=s.face)
            for s in shown.values()
        ]
        panels[0].legend(handles, list(shown), loc="lower right")
        figure.savefig(FIGURE, dpi=150)


def draw_of_sweeps(sweeps: Sequence[Sweep]) -> None:
    """The figures of the page that single sweeps draw too."""
    for image, (name, kind) in FIGURES.items():
        for sweep in (sweep for sweep in sweeps if sweep.name == name):
            figures = draw_paper_figures(sweep, published=published_faa)
            found = next(figure for figure in figures if figure.kind == kind)
            (IMAGES / f"{image}.png").write_bytes(found.png)


def put(page: str, mark: str, lines: Sequence[str]) -> str:
    """The page with new lines between the marks of a part."""
    pattern = rf"(<!-- {mark} -->\n).*?(<!-- /{mark} -->)"
    assert re.search(pattern, page, re.DOTALL), f"{PAGE} has no mark {mark}"
    return re.sub(pattern, lambda m: m[1] + "\n".join(lines) + "\n" + m[2], page, flags=re.DOTALL)


def found_in(folder: Path) -> tuple[list[Sweep], dict[str, tuple[Sweep, Beside]]]:
    """All sweeps of a folder, and the paper's tables among them that have runs."""
    sweeps = [read_sweep(file) for file in sorted((folder / "sweeps").glob("*.json"))]
    tables = {sweep.name.split("-")[0]: sweep for sweep in sweeps if is_plain(sweep)}
    found = {name: (tables[name], beside(tables[name])) for name in TABLES if name in tables}
    return sweeps, {name: each for name, each in found.items() if each[1].cells}


def is_plain(sweep: Sweep) -> bool:
    """Whether a sweep is a table with the usual detection."""
    return sweep.name in {f"{sweep.reproduces}-tables{end}" for end in ("", "-fast")}


def page_of(text: str, folder: Path) -> str:
    """The page with what a folder of sweeps holds between its marks."""
    sweeps, found = found_in(folder)
    text = put(text, "summary", summary_lines(found))
    text = put(text, "recovery", recovery_lines(found))
    text = put(text, "costs", cost_lines(found))
    parts = []
    for name, (sweep, _) in found.items():
        parts += [f"### {NAMES[name]}", "", sweep.scale_note, "", *table_lines(sweep), ""]
    text = put(text, "tables", parts)
    known = claims(sweeps)
    text = put(text, "claims", claim_lines(known))
    text = put(text, "plain", plain_lines(found, known))
    text = put(text, "detection", detection_lines(sweeps))
    text = put(text, "ablations", ablation_lines())
    text = put(text, "validity", validity_lines())
    return put(text, "leaderboard", board(sweeps).markdown().strip().splitlines())


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else RESULTS
    PAGE.write_text(page_of(PAGE.read_text(), folder))
    sweeps, tables = found_in(folder)
    draw(tables)
    draw_of_sweeps(sweeps)
