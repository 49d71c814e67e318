"""The learner, and one small file per method."""

from recollect.learn.er import ER
from recollect.learn.learner import Learner
from recollect.learn.objective import Draw, Inputs, Objective, Outcome

__all__ = ["ER", "Draw", "Inputs", "Learner", "Objective", "Outcome"]
