from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

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


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> Iterator[None]:
    """Tiny tensors gain nothing from more, and on a busy machine threads wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


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
    """Reports draw the cheapest of their figures alone."""
    from driftwise.report import figures
    from driftwise.report.costs import cost_radar

    monkeypatch.setattr(figures, "DRAWERS", {"radar": cost_radar})
