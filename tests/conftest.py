# ruff: noqa: E402
from __future__ import annotations

import itertools
import os
import signal
from pathlib import Path

# Tiny arrays gain nothing from more threads, which spin while they wait for each other. Read when numpy
# and torch are imported, here and in every process that a test starts.
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[_name] = "1"
# Workers and the processes of tests read compiled modules instead of compiling them once more each.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

import pytest
import torch
from hypothesis import settings

import driftwise

# A deadline per example measures the machine's other work, not ours.
settings.register_profile("driftwise", deadline=None)
settings.load_profile("driftwise")

# A shell's background job is started with SIGINT ignored, and its children would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _seeded() -> None:
    """Networks that a test makes by itself have the same weights whatever ran before."""
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of the default config with a single epoch; to be read, never written to."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    driftwise.run(driftwise.RunConfig(epochs=1), folder)
    return folder


@pytest.fixture
def one_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports draw the cheapest of their figures alone, sweeps the first."""
    from driftwise.report import setting_figures as figures
    from driftwise.report.costs import cost_radar
    from driftwise.reproduce import figures as sweep_figures

    drawings = sweep_figures._drawings
    monkeypatch.setattr(figures, "DRAWERS", {"radar": cost_radar})
    monkeypatch.setattr(
        sweep_figures, "_drawings", lambda *all_: itertools.islice(drawings(*all_), 1)
    )
