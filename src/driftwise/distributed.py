"""Several processes that learn as one: what they tell each other, by torch.distributed."""

from __future__ import annotations

import atexit
import contextlib
import datetime
import hashlib
import json
import math
import os
import time
import uuid
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from driftwise.devices import ASYNCHRONOUS
from driftwise.errors import RunFailure, UserError

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

T = TypeVar("T")
_HEAD, _AT_ONCE = 16, 1024
"""bytes that say how many values come and of what kind, and of values that are sent with them; a second
message has the rest"""
_LARGE = 2**16
"""numbers of a tensor that is sent by itself: to copy all gradients takes 4 % of a ResNet-18's step"""
PATIENCE = datetime.timedelta(minutes=5)
"""how long a process waits for the others; one that ends is noticed at once"""
_ENDED: list[object] = []
"""Groups that are over, freed later from here, without Python's lock. A DDP wrapper that outlives its group
would free it with the lock, and wait for threads that need the lock to let go of the last message."""
atexit.register(_ENDED.clear)


@contextlib.contextmanager
def joined() -> Iterator[Group]:
    """The group of the processes that torchrun started, joined for the moment; else this one alone.

    A group that the caller has initialised is used and left as it is. No process leaves before the
    others have done their work: one that waits for an answer would fail.

    >>> with joined() as group:
    ...     print(group.rank, group.size)
    0 1
    """
    if started_together() == 1 or not dist.is_available() or dist.is_initialized():
        yield Group()
        return
    _ENDED.clear()
    # Optimisers import this. Where that happens within a group, the group outlives its end, and its
    # threads now and then abort the process when Python ends.
    import torch._dynamo  # noqa: F401
    from torch.distributed.rendezvous import rendezvous  # not in every build of torch

    backend = _take_accelerator()
    with _with_peers():
        try:
            store, rank, size = next(rendezvous("env://", timeout=PATIENCE))
        except ValueError as error:
            raise UserError(
                "RANK and WORLD_SIZE say that this is one of several processes, and it cannot find the "
                f"others ({error}): start them with torchrun, or unset both"
            ) from error
        store.set_timeout(PATIENCE)
        place = dist.PrefixStore(_attempt(store, rank, size), store)  # type: ignore[attr-defined]
        dist.init_process_group(backend, store=place, rank=rank, world_size=size, timeout=PATIENCE)
    try:
        group = Group()
        yield group
        group.any(True)
    finally:
        _ENDED.append(dist.group.WORLD)
        dist.destroy_process_group()


def _attempt(store: Store, rank: int, size: int) -> str:
    """A name that the processes of this start share, and those of an earlier one did not have.

    Torchrun keeps its store when it starts processes again: an address of a process that is gone
    may be read before its successor has written another, and the group is never complete. Process 0
    therefore repeats the signs of all others until each has found its own, fresh one there.
    """
    own = uuid.uuid4().hex
    store.set(f"sign {rank}", own)
    others = range(1, size)
    end = time.monotonic() + PATIENCE.total_seconds()
    while time.monotonic() < end:
        if rank == 0:
            signs = [store.get(f"sign {other}").decode() for other in others]
            store.set("signs", " ".join([own, *signs]))
            if all(_found(store, f"seen {other}") == own for other in others):
                return own
        else:
            signs = store.get("signs").decode().split()
            if signs[rank : rank + 1] == [own]:
                store.set(f"seen {rank}", signs[0])
                return signs[0]
        time.sleep(0.01)
    raise RunFailure(f"expected {size} processes; not all of them came within {PATIENCE}")


def _found(store: Store, key: str) -> str:
    return store.get(key).decode() if store.check([key]) else ""


def _take_accelerator() -> str:
    """Take the GPU of this process's number, where there are GPUs; the backend for messages."""
    kind = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    backend = ASYNCHRONOUS.get("cpu" if kind is None else kind.type)
    if kind is None or backend is None:
        return "gloo"
    place, there = int(os.environ.get("LOCAL_RANK", "0")), torch.accelerator.device_count()
    if place >= there:
        raise UserError(
            f"process {place} of this machine has no {kind.type} device: there are {there}; start at "
            f"most {there} processes here"
        )
    torch.accelerator.set_device_index(place)
    return backend


def started_together() -> int:
    """How many processes torchrun has started, this one among them; 1 without it."""
    size = os.environ.get("WORLD_SIZE", "1")
    return int(size) if size.isdecimal() and "RANK" in os.environ else 1


def restarted() -> bool:
    """Whether torchrun has started this process again, after one had failed."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0


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
        if self.size > 1 and dist.get_backend(group) in ASYNCHRONOUS.values():
            accelerator = torch.accelerator.current_accelerator() or self._device
            index = torch.accelerator.current_device_index()
            self._device = torch.device(accelerator.type, index)

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

    def gather(self, values: Tensor, what: str = "") -> Tensor:
        """The values of all processes, (samples, ...) each, one after the other; on the CPU.

        Each process may bring another number of samples, all of one shape and dtype. `what`: the call
        that needs them, where others gather values like these; RunFailure where processes differ in it.
        """
        if self.size == 1:
            return values.cpu()
        with _with_peers():
            return self._gather(values, what)

    def _gather(self, values: Tensor, what: str) -> Tensor:
        flat = as_bytes(values).reshape(-1).to(self._device)
        kind = zlib.crc32(f"{what} {values.dtype} {tuple(values.shape[1:])}".encode())
        own = torch.tensor([len(values), kind]).view(torch.uint8).to(self._device)
        first = self._from_each(torch.cat([own, flat[:_AT_ONCE]]), _HEAD + _AT_ONCE).cpu()
        counts, kinds = first[:, :_HEAD].contiguous().view(torch.int64).T.tolist()
        if len(set(kinds)) > 1:
            raise RunFailure(
                "processes make different calls at the same point; does one have more batches than "
                "another? Give all as many, of samples of one shape and dtype, and make the same calls"
            )
        width = _bytes_of(values)
        rest = max(0, max(counts) * width - _AT_ONCE)  # as all processes know
        second = self._from_each(flat[_AT_ONCE:], rest).cpu() if rest else first[:, :0]
        parts = []
        for count, begin, end in zip(counts, first[:, _HEAD:], second, strict=True):
            parts += [begin[: count * width], end[: max(0, count * width - _AT_ONCE)]]
        return _as_values(torch.cat(parts).reshape(sum(counts), width), values)

    def _from_each(self, values: Tensor, length: int) -> Tensor:
        """Up to `length` bytes of each process, (processes, length), with zeros behind them."""
        padded = torch.zeros(length, dtype=torch.uint8, device=self._device)
        padded[: len(values)] = values
        everybody = padded.new_empty(self.size, length)
        dist.all_gather([*everybody], padded, group=self._group)
        return everybody

    def gather_columns(self, columns: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """`gather` for several values of each sample, in one message."""
        if self.size == 1 or not columns:
            return {name: column.cpu() for name, column in columns.items()}
        return _unpacked(self.gather(_packed(columns)), columns)

    def exchange(
        self, columns: Mapping[str, Tensor], *, send: Sequence[int], receive: Sequence[int]
    ) -> dict[str, Tensor]:
        """Send so many samples to each process, in order; returns those that come, in order.

        `send[i]` samples go to process i, and `receive[i]` come from it, in one message.
        """
        if self.size == 1 or not columns:
            return {name: column.cpu() for name, column in columns.items()}
        given = _packed(columns).to(self._device)
        came = torch.empty(sum(receive), given.shape[1], dtype=torch.uint8, device=self._device)
        with _with_peers():
            dist.all_to_all_single(came, given, list(receive), list(send), group=self._group)
        return _unpacked(came.cpu(), columns)

    def average(self, tensors: Sequence[Tensor]) -> None:
        """Replace each tensor by its mean over all processes: large ones as they are, others together."""
        if self.size == 1 or not tensors:
            return
        alone: list[Tensor] = []
        others: list[Tensor] = []
        for tensor in tensors:
            is_plain = tensor.dtype == torch.float32 and tensor.is_contiguous()
            (alone if is_plain and tensor.numel() >= _LARGE else others).append(tensor.detach())
        sent = [*alone]
        if others:
            sent.append(torch.cat([tensor.reshape(-1).float() for tensor in others]))
        with _with_peers():
            messages = [dist.all_reduce(each, group=self._group, async_op=True) for each in sent]
            for message in messages:
                message.wait()
        torch._foreach_div_(sent, self.size)
        if others:
            parts = torch.split(sent[-1], [tensor.numel() for tensor in others])
            for tensor, part in zip(others, parts, strict=True):
                tensor.copy_(part.view_as(tensor))

    def refuse_difference(self, what: str, values: Mapping[str, Any]) -> None:
        """UserError in every process where one has other values, which names processes and values.

        `values`: as JSON has them.
        """
        if self.size == 1:
            return
        everybody = [json.loads(text) for text in self.texts(json.dumps(values))]
        first = everybody[0]
        for rank, other in enumerate(everybody):
            keys = [key for key in {**first, **other} if first.get(key) != other.get(key)]
            if keys:
                named = "; ".join(
                    f"{key} {_short(other.get(key))}, rank 0 {_short(first.get(key))}"
                    for key in keys[:3]
                )
                more = f"; and {len(keys) - 3} more" if len(keys) > 3 else ""
                raise UserError(
                    f"expected the same {what} in all {self.size} processes; rank {rank} has {named}"
                    f"{more}: start all processes with the same command on the same data"
                )

    def texts(self, text: str) -> list[str]:
        """The texts of all processes, by rank."""
        own = torch.tensor(list(text.encode()), dtype=torch.uint8)
        lengths = self.gather(torch.tensor([len(own)])).tolist()
        return [bytes(part.tolist()).decode() for part in torch.split(self.gather(own), lengths)]

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


def digest_of(tensors: Iterable[Tensor]) -> str:
    """A short text that other values do not have."""
    digest = hashlib.blake2b(digest_size=8)
    for tensor in tensors:
        rows = tensor.detach().cpu().reshape(1, -1)
        digest.update(f"{tensor.dtype} {tuple(tensor.shape)} ".encode())
        digest.update(as_bytes(rows).numpy().data)
    return digest.hexdigest()


def shard_blocks(network: nn.Module) -> None:
    """Keep a part of the weights in each process (FSDP2); a forward has those of a block at a time.

    Blocks are what stands in the network's `nn.Sequential` and `nn.ModuleList`.
    """
    from torch.distributed.fsdp import fully_shard  # takes a second to import

    def shard(module: nn.Module) -> None:
        for child in module.children():
            if isinstance(module, nn.Sequential | nn.ModuleList) and [*child.parameters()]:
                fully_shard(child)
            else:
                shard(child)

    shard(network)
    fully_shard(network)


def whole(state: Any) -> Any:
    """The state of a network or optimiser, with whole tensors where processes share them, on the CPU."""
    from torch.distributed.tensor import DTensor

    if isinstance(state, Mapping):
        return {name: whole(value) for name, value in state.items()}
    if isinstance(state, list | tuple):
        return type(state)(map(whole, state))
    return state.full_tensor().cpu() if isinstance(state, DTensor) else state


def share_out(values: Mapping[str, Any], like: Mapping[str, Any]) -> dict[str, Any]:
    """This process's part of whole tensors, wherever `like` has a part of the same shape."""
    mine = dict(values)
    for name, part in like.items():
        if hasattr(part, "placements") and getattr(mine.get(name), "shape", None) == part.shape:
            from torch.distributed.tensor import distribute_tensor

            whole_one = mine[name].to(part.device)
            mine[name] = distribute_tensor(whole_one, part.device_mesh, part.placements)
    return mine


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _bytes_of(values: Tensor) -> int:
    return math.prod(values.shape[1:]) * values.itemsize


def as_bytes(values: Tensor) -> Tensor:
    """uint8 (samples, bytes): not every backend knows every dtype."""
    if not len(values):  # torch views no empty tensor as another dtype
        return torch.empty(0, _bytes_of(values), dtype=torch.uint8, device=values.device)
    return values.detach().contiguous().reshape(len(values), -1).view(torch.uint8)


def _packed(columns: Mapping[str, Tensor]) -> Tensor:
    """All values of a sample in one row of bytes, (samples, bytes)."""
    return torch.cat([as_bytes(column) for column in columns.values()], dim=1)


def _unpacked(rows: Tensor, like: Mapping[str, Tensor]) -> dict[str, Tensor]:
    parts = torch.split(rows, [_bytes_of(column) for column in like.values()], dim=1)
    return {
        name: _as_values(part.clone(memory_format=torch.contiguous_format), column)
        for part, (name, column) in zip(parts, like.items(), strict=True)
    }


def _as_values(rows: Tensor, like: Tensor) -> Tensor:
    if not len(rows):
        return torch.empty(0, *like.shape[1:], dtype=like.dtype)
    return rows.contiguous().view(like.dtype).reshape(len(rows), *like.shape[1:])
