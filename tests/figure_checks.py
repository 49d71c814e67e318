"""What every figure must hold, whatever it shows."""

from __future__ import annotations

import io
from itertools import combinations
from unittest import mock
from xml.etree import ElementTree

import matplotlib.image
import numpy as np
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from driftwise.report.facets import RenderedFigure


def check_drawn_and_uncut(*figures: RenderedFigure) -> None:
    """There is ink on the paper, and none at its edges; the SVG is XML."""
    for figure in figures:
        pixels = matplotlib.image.imread(io.BytesIO(figure.png))
        inked = np.any(pixels[:, :, :3] < 0.9, axis=2)
        assert 0.005 < inked.mean() < 0.9, figure.kind
        border = np.concatenate([inked[0], inked[-1], inked[:, 0], inked[:, -1]])
        assert not border.any(), figure.kind
        ElementTree.fromstring(figure.svg)


def check_no_overlap(figure: Figure) -> None:
    """No two texts of a figure cover each other, and all lie on the paper."""
    drawn: list[Text] = []
    with mock.patch.object(Text, "draw", lambda text, _: drawn.append(text)):
        figure.draw_without_rendering()
    boxes = [  # of an annotation, without its arrow
        (text.get_text(), Text.get_window_extent(text))
        for text in drawn
        if text.get_visible() and text.get_text().strip()
    ]
    for text, box in boxes:
        assert Bbox.union([box, figure.bbox]).bounds == figure.bbox.bounds, f"cut off: {text}"
    for (text, box), (other, its_box) in combinations(boxes, 2):
        across = min(box.x1, its_box.x1) - max(box.x0, its_box.x0)
        up = min(box.y1, its_box.y1) - max(box.y0, its_box.y0)
        assert across < 2 or up < 2, f"{text!r} overlaps {other!r}"
