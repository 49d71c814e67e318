from __future__ import annotations

import pytest

from driftwise.report import figures
from driftwise.report.costs import cost_radar


@pytest.fixture
def one_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports draw the cheapest of their figures alone."""
    monkeypatch.setattr(figures, "DRAWERS", {"radar": cost_radar})
