"""The replay buffer, of one process or several, and the policies that decide what it keeps."""

from driftwise.memory.buffer import ReplayBuffer, Stored
from driftwise.memory.distributed_buffers import AnyBuffer, ReplicatedBuffer, ShardedBuffer
from driftwise.memory.policies import POLICIES, Balanced, Policy, Reservoir
from driftwise.memory.prefetch import PrefetchingBuffer

__all__ = [
    "POLICIES",
    "AnyBuffer",
    "Balanced",
    "Policy",
    "PrefetchingBuffer",
    "ReplayBuffer",
    "ReplicatedBuffer",
    "Reservoir",
    "ShardedBuffer",
    "Stored",
]
