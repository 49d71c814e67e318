"""What the index says about each sweep: how far it is, its table, its figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

from driftwise.report.index.rows import DONE, FAILED, NOT_DONE
from driftwise.report.markup import text
from driftwise.report.sweeps import Sweep, names_a_file

FIGURES = "figures"
TABLES = {"csv": "CSV", "md": "Markdown", "tex": "LaTeX", "txt": "text"}
"""Files beside a sweep's figures that hold its table, by their ending."""

MOST_WARNINGS = 5
"""Lines of warning that are shown without being asked for."""


def counted(counts: Mapping[str, int]) -> str:
    """How many runs there are, and how they stand.

    >>> counted({"done": 4, "failed": 1})
    '4 of 5 runs done, 1 failed'
    """
    asked = sum(counts.values())
    words = [f"{counts.get(DONE, 0):,} of {asked:,} {'run' if asked == 1 else 'runs'} done"]
    words += [f"{counts[state]:,} {state}" for state in (FAILED, NOT_DONE) if counts.get(state, 0)]
    return ", ".join(words)


def contents(sweeps: Sequence[Sweep], states: Mapping[str, str]) -> str:
    """Links to all sections; `states` are told by the id of a run."""
    items = "".join(
        f'<li><a href="#sweep-{number}">{text(sweep.name)}</a>'
        f"{_progress(_states_of(sweep, states))}</li>"
        for number, sweep in enumerate(sweeps)
    )
    return f'<nav aria-label="Sweeps"><ul>{items}</ul><p><a href="#runs">All runs</a></p></nav>'


def _states_of(sweep: Sweep, states: Mapping[str, str]) -> Counter[str]:
    return Counter(states[entry.id] for entry in sweep.entries)


def _progress(counts: Mapping[str, int]) -> str:
    asked = max(1, sum(counts.values()))
    widths = [100 * counts.get(state, 0) / asked for state in (DONE, FAILED)]
    return (
        f'<span class="progress"><span class="bar" aria-hidden="true">'
        f'<i style="width:{widths[0]:.2f}%"></i><i class="failed" style="width:{widths[1]:.2f}%">'
        f"</i></span> {counted(counts)}</span>"
    )


def section(out: Path, number: int, sweep: Sweep, states: Mapping[str, str], fragment: str) -> str:
    """A sweep's heading, what could not be read of it, `fragment`, and what was drawn from it."""
    what = f"Reproduces {sweep.reproduces} at scale" if sweep.reproduces else "Scale"
    # The table, where there is one, begins with the scale and what it means.
    note = f": {sweep.scale_note}" if sweep.scale_note and not fragment else ""
    name = text(sweep.name)
    held = (
        f'<div class="scroll fragment" tabindex="0" role="region" aria-label="{name}">{fragment}'
        "</div>"
        if fragment
        else ""
    )
    return f"""<section class="sweep" aria-labelledby="sweep-{number}">
<h2 id="sweep-{number}" tabindex="-1">{name}</h2>
<p class="meta">{text(f"{what} {sweep.scale}{note}")}</p>
<p class="meta">{_progress(_states_of(sweep, states))}
<button type="button" class="only" data-sweep="{name}">Show its runs</button></p>
{_warnings(sweep.warnings)}
{held}
{_files(out, sweep.name)}
</section>"""


def _warnings(lines: Sequence[str]) -> str:
    if not lines:
        return ""
    items = [f"<li>{text(line)}</li>" for line in lines]
    more = items[MOST_WARNINGS:]
    rest = f"<details><summary>{len(more)} more</summary><ul>{''.join(more)}</ul></details>"
    return (
        '<div class="warnings"><p>Not everything could be read:</p>'
        f"<ul>{''.join(items[:MOST_WARNINGS])}</ul>{rest if more else ''}</div>"
    )


def _files(out: Path, name: str) -> str:
    """What was drawn from a sweep and lies in its folder: links to tables, and the figures."""
    folder = out / name
    if not names_a_file(name) or not folder.is_dir():
        return ""
    at = quote(name)
    tables = [
        f'<a href="{at}/table.{ending}">{words}</a>'
        for ending, words in TABLES.items()
        if (folder / f"table.{ending}").is_file()
    ]
    drawn: dict[str, dict[str, str]] = {}
    for file in sorted((folder / FIGURES).glob("*")):
        if file.suffix in (".svg", ".png") and file.is_file():
            address = f"{at}/{FIGURES}/{quote(file.name)}"
            drawn.setdefault(file.stem, {})[file.suffix[1:].upper()] = address
    figures = "\n".join(_figure(stem, addresses) for stem, addresses in drawn.items())
    links = f'<p class="meta">The table as {" · ".join(tables)}</p>' if tables else ""
    return links + (f'<div class="drawn">\n{figures}\n</div>' if figures else "")


def _figure(stem: str, addresses: Mapping[str, str]) -> str:
    shown = addresses.get("SVG") or addresses["PNG"]
    name = text(stem.replace("-", " ").replace("_", " "))
    links = " · ".join(f'<a href="{where}">{kind}</a>' for kind, where in addresses.items())
    return (
        f'<figure><a href="{shown}"><img loading="lazy" alt="Figure: {name}" src="{shown}"></a>'
        f"<figcaption>{name} ({links})</figcaption></figure>"
    )
