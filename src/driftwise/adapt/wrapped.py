"""The state of adaptations, most of which have none."""

from __future__ import annotations

from typing import Any

from driftwise.protocols import Adaptation


def state_of(adaptation: Adaptation) -> dict[str, Any]:
    """Everything that changes in an adaptation."""
    state: dict[str, Any] = getattr(adaptation, "state_dict", dict)()
    return state


def load_state_of(adaptation: Adaptation, state: dict[str, Any]) -> None:
    """Take up where `state_of` left off."""
    if hasattr(adaptation, "load_state_dict"):
        adaptation.load_state_dict(state)
    elif state:
        raise ValueError(f"this adaptation keeps no state; got {sorted(state)}")
