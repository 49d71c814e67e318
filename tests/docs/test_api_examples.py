"""Public names have an example that runs: in their docstring, or in that of one of their methods."""

from __future__ import annotations

import inspect
from typing import Any

import driftwise

INTERFACES = {
    "adapt.Adaptation",
    "methods.AnalyticMethod",
    "methods.Method",
    "models.ResidualBlock",
}
"""base classes, shown by what derives from them; protocols are recognised as such"""
IN_A_RUN = {
    "detect.AlwaysDetector",
    "detect.ClassTests",
    "detect.Comparison",
    "detect.EncoderContext",
    "detect.FingerprintReference",
    "detect.LearnerEncoder",
    "detect.Monitor",
    "detect.NeverDetector",
    "detect.OracleDetector",
    "detect.RandomEncoder",
    "detect.TwoSampleDetector",
    "encoders.EncoderContext",
    "encoders.LearnerEncoder",
    "encoders.RandomEncoder",
    "methods.Inputs",
    "streams.StreamLabels",
    "streams.Task",
    "streams.TaskLabels",
}
"""made by a run, a loop or a builder, not by a user"""
BY_ANOTHER = {
    "Client": "serve",
    "Predictor": "run",
    "Results": "run",
    "RunFailure": "UserError",
    "datasets.fetch": "datasets.load",
    "datasets.group_domains": "datasets.load",
    "encoders.EmbeddingCache": "encoders.load",
    "load": "run",
    "results": "run",
    "resume": "run",
    "write_report": "run",
}
"""they need a finished run, a service or a download: shown by the example of another name, or by pages"""


def public() -> dict[str, Any]:
    """Classes and functions of the package and of its public modules, by dotted name."""
    found: dict[str, Any] = {}
    for name in driftwise.__all__:
        value = getattr(driftwise, name)
        found[name] = value
        if inspect.ismodule(value):
            found |= {
                f"{name}.{each}": getattr(value, each) for each in getattr(value, "__all__", ())
            }
    return {
        name: value
        for name, value in found.items()
        if inspect.isclass(value) or inspect.isfunction(value)
    }


def has_example(value: Any) -> bool:
    members = vars(value).values() if inspect.isclass(value) else ()
    return any(">>>" in (each.__doc__ or "") for each in (value, *members))


def test_every_public_name_has_an_example() -> None:
    names = public()
    lacking = {
        name
        for name, value in names.items()
        if not has_example(value) and not getattr(value, "_is_protocol", False)
    }
    lacking = {name for name in lacking if not name.startswith("plot.")}  # run in docs/gallery.md
    # Exceptions end when an example is written.
    assert lacking == INTERFACES | IN_A_RUN | set(BY_ANOTHER)
