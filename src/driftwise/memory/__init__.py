"""The replay buffer, of one process or several, and the policies that decide what it keeps."""

from driftwise.memory.buffer import ReplayBuffer, Stored
from driftwise.memory.distributed import ReplicatedBuffer, ShardedBuffer
from driftwise.memory.policies import POLICIES, Balanced, Policy, Reservoir

__all__ = [
    "POLICIES",
    "Balanced",
    "Policy",
    "ReplayBuffer",
    "ReplicatedBuffer",
    "Reservoir",
    "ShardedBuffer",
    "Stored",
]
