"""A service, a stream of photos, cartoons and sketches, and people who label a sample in four seconds.

    DRIFTWISE_DATA=... python examples/serve_pacs.py [--short] [--figure FILE]

The stream of `pacs.py`, one image a second, goes to a service (pip install 'driftwise[imagenet]').
Nobody, one person or three people sit at its inbox. Time is simulated: a person answers the most
valuable sample that no other one sees, then takes the next. Accuracy is that of predictions made
when the samples came, of those without a label.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import matplotlib
import numpy as np
import torch
from pacs import seen_by_imagenet, stream_of
from showing import Stream, scored_parts, smooth

from driftwise.datasets import library
from driftwise.errors import UserError
from driftwise.report import style
from driftwise.report.facets import facets, to_png
from driftwise.serve.server import Learning, open_service
from driftwise.serve.service import Service
from driftwise.serve.settings import ServeSettings

BATCH, PEOPLE, SECONDS = 20, (0, 1, 3), 4.0
SETTINGS = {"detector": "ks", "watch_every": 4, "reference_size": 30, "check_rows": 40}
OVER = 200
"""samples of the accuracy in the figure"""


@dataclass(kw_only=True)
class Course:
    """What happened with so many people at the inbox."""

    hits: np.ndarray
    """bool (samples,)"""
    answers: list[int] = field(default_factory=list)
    """the sample that had just come when a label was given"""

    @property
    def minutes(self) -> float:
        """Of labelling, of all people together."""
        return len(self.answers) * SECONDS / 60


def run_service(
    service: Service, stream: Stream, people: int, *, samples_per_second: float
) -> Course:
    """The whole stream, with people at the inbox."""
    course = Course(hits=np.zeros(len(stream.labels), dtype=bool))
    free_at = [0.0] * people
    for start in range(0, len(stream.labels), BATCH):
        part = slice(start, start + BATCH)
        labels = np.where(stream.given[part], stream.labels[part], -1)
        seen = service.observe(stream.images[part], labels.tolist()).result()
        course.hits[part] = np.array(seen["predicted"]) == stream.labels[part]
        now = (start + BATCH) / samples_per_second
        for person, free in enumerate(free_at):
            free_at[person] = max(free, now - BATCH / samples_per_second)
            while free_at[person] + SECONDS <= now:
                cards = service.board.lease(f"person {person}", 1)
                if not cards:
                    break
                service.label([cards[0].id], [int(stream.labels[cards[0].id])]).result()
                free_at[person] += SECONDS
                course.answers.append(start + BATCH)
    return course


def table(stream: Stream, courses: dict[int, Course]) -> str:
    """Accuracy in percent by part, of samples without a label; labels and minutes."""
    parts = scored_parts(stream)
    columns = [*(name for name, _ in parts), "all", "labels", "minutes"]
    lines = [f"{'people':8}" + "".join(f"{name:>13}" for name in columns)]
    rest = np.flatnonzero(~stream.given)
    for people, course in courses.items():
        numbers = [100 * course.hits[samples].mean() for _, samples in (*parts, ("all", rest))]
        lines.append(
            f"{people:<8}"
            + "".join(f"{number:13.1f}" for number in numbers)
            + f"{len(course.answers):13}{course.minutes:13.1f}"
        )
    return "\n".join(lines)


def draw(stream: Stream, courses: dict[int, Course], file: Path) -> None:
    """Accuracy, and minutes of labelling so far, as one PNG."""
    names = {
        people: f"{people or 'no'} {'person' if people == 1 else 'people'}" for people in courses
    }
    styles = style.styles_of(tuple(names.values()))
    with matplotlib.rc_context(style.RC):
        grid = facets(2, (7.8, 2.1), columns=1)
        upper, lower = grid.panels
        for people, course in courses.items():
            line = styles[names[people]]
            options = {**line.line_options(), "marker": "", "linewidth": 1.5}
            upper.plot(100 * smooth(course.hits, OVER), label=names[people], **options)
            minutes = np.arange(1, len(course.answers) + 1) * SECONDS / 60
            lower.step([0, *course.answers], [0, *minutes], where="post", **options)
        starts, parts = zip(*stream.parts, strict=True)
        for axes in (upper, lower):
            axes.set_xlim(0, len(stream.labels))
            axes.set_xticks(starts, parts if axes is lower else [""] * len(parts), ha="left")
            axes.grid()
        upper.set_ylabel(f"accuracy over\n{OVER} samples, %")
        lower.set_ylabel("minutes of\nlabelling")
        handles = upper.get_legend_handles_labels()[0]
        grid.add_legend(handles, "PACS through a service, with people at its inbox")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(to_png(grid.figure))


def main(words: list[str] | None = None) -> None:
    """Run, print, draw."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--short", action="store_true", help="few images")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--figure", type=Path, default=Path("example-serve-pacs.png"))
    asked = parser.parse_args(words)
    torch.set_num_threads(1)
    if library.find("pacs") is None:
        raise UserError("PACS was not found: see `driftwise data list`, and set DRIFTWISE_DATA")
    seen = seen_by_imagenet(library.load("pacs"), most=250 if asked.short else 2000)
    stream = stream_of(seen, asked.seed)
    sizes = {"reference_size": 10, "check_rows": 15} if asked.short else {}
    learning = Learning(network="mlp", settings={**SETTINGS, **sizes, "seed": asked.seed})
    courses = {}
    for people in PEOPLE:
        with (
            tempfile.TemporaryDirectory() as folder,
            open_service(Path(folder), learning, ServeSettings(save_seconds=1e6)) as service,
        ):
            courses[people] = run_service(service, stream, people, samples_per_second=1.0)
    print(table(stream, courses))
    draw(stream, courses, asked.figure)


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        sys.exit(str(error))
