"""The replay memory: a fixed number of samples, and the policies that say which samples stay."""

from driftwise.memory.buffer import ReplayBuffer, Stored
from driftwise.memory.policies import POLICIES, Balanced, Policy, Reservoir

__all__ = ["POLICIES", "Balanced", "Policy", "ReplayBuffer", "Reservoir", "Stored"]
