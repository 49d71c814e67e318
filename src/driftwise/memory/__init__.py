"""The replay buffer, and the policies that decide which samples it keeps."""

from driftwise.memory.buffer import ReplayBuffer, Stored
from driftwise.memory.policies import POLICIES, Balanced, Policy, Reservoir

__all__ = ["POLICIES", "Balanced", "Policy", "ReplayBuffer", "Reservoir", "Stored"]
