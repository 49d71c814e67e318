"""Modules that need an extra are read for examples only where it is installed."""

from importlib.util import find_spec

collect_ignore = [
    f"src/driftwise/integrations/{name}.py"
    for name in ("avalanche", "lightning", "transformers")
    if find_spec(name) is None
]
