"""What is done when classes have drifted: nothing, relearn them, or realign the memory."""

from driftwise.adapt.realign import Realign
from driftwise.adapt.relearn import Relearn
from driftwise.adapt.vanilla import Vanilla

__all__ = ["Realign", "Relearn", "Vanilla"]
