"""What is done when classes have drifted: nothing, relearn them, or realign the memory."""

from recollect.adapt.realign import Realign
from recollect.adapt.relearn import Relearn
from recollect.adapt.vanilla import Vanilla

__all__ = ["Realign", "Relearn", "Vanilla"]
