"""Several processes that learn as one: what they tell each other, by torch.distributed."""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import math
import os
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from driftwise.errors import RunFailure, UserError

T = TypeVar("T")
PATIENCE = datetime.timedelta(minutes=5)
"""how long a process waits for the others; one that ends is noticed at once"""


@contextlib.contextmanager
def joined() -> Iterator[Group]:
    """The group of the processes that torchrun started, joined for the moment; else this one alone.

    A group that the caller has initialised is used and left as it is.
    """
    started = int(os.environ.get("WORLD_SIZE", "1")) > 1 and "RANK" in os.environ
    if not started or not dist.is_available() or dist.is_initialized():
        yield Group()
        return
    backend = "nccl" if torch.cuda.is_available() else "gloo"
    if backend == "nccl":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    dist.init_process_group(backend, timeout=PATIENCE)
    try:
        yield Group()
    finally:
        dist.destroy_process_group()


@contextlib.contextmanager
def _with_peers() -> Iterator[None]:
    """RunFailure where another process has ended, or does not answer."""
    try:
        yield
    except RuntimeError as error:
        if isinstance(error, RunFailure):
            raise
        details = " ".join(str(error).split())[:200]
        raise RunFailure(
            f"another process has ended or does not answer ({details}); everything up to the last "
            "checkpoint is kept: start all processes again with resume"
        ) from error


class Group:
    """The processes that train together, or this process alone.

    Every method is collective: each process of the group calls it at the same point.
    """

    def __init__(self, group: dist.ProcessGroup | None = None) -> None:
        """`group`: some of the processes; None: all of them, if torch.distributed is initialised."""
        self._group = group
        together = dist.is_available() and dist.is_initialized()
        self.rank = dist.get_rank(group) if together else 0
        """the number of this process, from 0"""
        self.size = dist.get_world_size(group) if together else 1
        """how many processes there are"""
        self._device = torch.device("cpu")
        if self.size > 1 and dist.get_backend(group) == "nccl":
            self._device = torch.device("cuda", torch.cuda.current_device())

    def refuse_several(self, what: str) -> None:
        """UserError where there are other processes, for what works in one alone."""
        if self.size > 1:
            raise UserError(
                f"{what} works in one process; this one is rank {self.rank} of {self.size}: make it "
                "where no process group of torch.distributed is initialised"
            )

    def share(self, count: int, rank: int | None = None) -> slice:
        """Which of `count` samples a process takes: neighbours, as evenly as possible.

        >>> [Group().share(5, rank=0)]
        [slice(0, 5, None)]
        """
        rank = self.rank if rank is None else rank
        small, larger = divmod(count, self.size)
        start = rank * small + min(rank, larger)
        return slice(start, start + small + (rank < larger))

    def gather(self, values: Tensor) -> Tensor:
        """The values of all processes, (samples, ...) each, one after the other; on the CPU.

        Each process may bring another number of samples, all of one shape and dtype.
        """
        if self.size == 1:
            return values.cpu()
        with _with_peers():
            return self._gather(values)

    def _gather(self, values: Tensor) -> Tensor:
        counts = self._counts(len(values))
        most = max(counts)
        padded = torch.zeros(most, _bytes_of(values), dtype=torch.uint8, device=self._device)
        padded[: len(values)] = _as_bytes(values).to(self._device)
        parts = [torch.empty_like(padded) for _ in counts]
        dist.all_gather(parts, padded, group=self._group)
        came = torch.cat([part[:count] for part, count in zip(parts, counts, strict=True)])
        return _as_values(came.cpu(), values)

    def exchange(self, values: Tensor, *, send: Sequence[int], receive: Sequence[int]) -> Tensor:
        """Send so many of the values to each process, in order; returns those that come, in order.

        `send[i]` values go to process i, and `receive[i]` come from it.
        """
        if self.size == 1:
            return values.cpu()
        given = _as_bytes(values).to(self._device)
        came = torch.empty(sum(receive), given.shape[1], dtype=torch.uint8, device=self._device)
        with _with_peers():
            dist.all_to_all_single(came, given, list(receive), list(send), group=self._group)
        return _as_values(came.cpu(), values)

    def average(self, tensors: Sequence[Tensor]) -> None:
        """Replace each tensor by its mean over all processes, in one message."""
        if self.size == 1 or not tensors:
            return
        flat = torch.cat([tensor.detach().reshape(-1).float() for tensor in tensors])
        with _with_peers():
            dist.all_reduce(flat, group=self._group)
        flat /= self.size
        parts = torch.split(flat, [tensor.numel() for tensor in tensors])
        with torch.no_grad():
            for tensor, part in zip(tensors, parts, strict=True):
                tensor.copy_(part.view_as(tensor))

    def refuse_difference(self, what: str, value: str) -> None:
        """UserError in every process where one has another value, which names the processes."""
        digest = hashlib.blake2b(value.encode(), digest_size=16).digest()
        everybody = self.gather(torch.tensor([list(digest)], dtype=torch.uint8)).tolist()
        others = [rank for rank, own in enumerate(everybody) if own != everybody[0]]
        if others:
            named = ", ".join(map(str, others))
            raise UserError(
                f"expected the same {what} in all {self.size} processes; rank {named} has another "
                "than rank 0: start all processes with the same command on the same data"
            )

    def any(self, *wishes: bool) -> tuple[bool, ...]:
        """For each wish, whether any process has it."""
        if self.size == 1:
            return wishes
        return tuple(self.gather(torch.tensor([wishes])).any(dim=0).tolist())

    def first(self, work: Callable[[], T]) -> T:
        """Do something in process 0, then in the others; an error of process 0 ends all of them."""
        if self.size == 1:
            return work()
        done, text = None, ""
        if self.rank == 0:
            try:
                done = (work(),)
            except (UserError, RunFailure) as error:
                text = str(error)
                self.gather(torch.tensor(list(text.encode()), dtype=torch.uint8))
                raise
        text = bytes(self.gather(torch.empty(0, dtype=torch.uint8)).tolist()).decode()
        if text:
            raise UserError(f"rank 0: {text}")
        return work() if done is None else done[0]

    def _counts(self, count: int) -> list[int]:
        counts = [torch.zeros(1, dtype=torch.int64, device=self._device) for _ in range(self.size)]
        dist.all_gather(counts, torch.tensor([count], device=self._device), group=self._group)
        return [int(each) for each in counts]


def _bytes_of(values: Tensor) -> int:
    return math.prod(values.shape[1:]) * values.itemsize


def _as_bytes(values: Tensor) -> Tensor:
    """(samples, bytes): not every backend knows every dtype."""
    if not len(values):  # torch views no empty tensor as another dtype
        return torch.empty(0, _bytes_of(values), dtype=torch.uint8)
    return values.detach().contiguous().reshape(len(values), -1).view(torch.uint8)


def _as_values(rows: Tensor, like: Tensor) -> Tensor:
    if not len(rows):
        return torch.empty(0, *like.shape[1:], dtype=like.dtype)
    return rows.contiguous().view(like.dtype).reshape(len(rows), *like.shape[1:])
