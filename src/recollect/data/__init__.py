"""Pictures and labels as uint8 arrays, and how their rows are cut into parts."""

from recollect.data.digits import load_digits
from recollect.data.parts import cut

__all__ = ["cut", "load_digits"]
