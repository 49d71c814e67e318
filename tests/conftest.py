from __future__ import annotations

from pathlib import Path

import pytest

import recollect


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of the default config with a single epoch; to be read, never written to."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    recollect.run(recollect.RunConfig(epochs=1), folder)
    return folder
