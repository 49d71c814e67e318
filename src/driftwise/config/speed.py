"""How fast runs compute, as a named choice that sets existing settings."""

from __future__ import annotations

import dataclasses
import functools
import os
import re
import time
from collections.abc import Collection
from pathlib import Path

from driftwise.config.presets import preset_of
from driftwise.config.schema import RunConfig

PLAIN = ("mlp",)
"""networks that gain nothing from bfloat16 or another layout"""

BF16 = r"\b(avx512_bf16|amx_bf16|bf16)\b"
"""instructions for bfloat16 in /proc/cpuinfo"""


def fast(config: RunConfig, *, given: Collection[str] = ()) -> RunConfig:
    """The config with the fastest settings of this machine; late digits differ.

    Channels-last, bfloat16 where there are instructions for it (float16 on older GPUs), and as many
    threads as are fastest by measurement: all of them settings that then stand in the config by
    value, so that the run is the same elsewhere. Those that were `given` keep their value. Nothing
    is compiled: at the widths of small scales, compilation takes longer than it saves
    (`benchmarks/bench_speed.py`).

    >>> fast(RunConfig(benchmark="cifar10-cd", threads=1), given=["precision"]).memory_format
    'channels-last'
    """
    backbone = config.backbone or preset_of(config).values["backbone"]
    settings: dict[str, object] = {}
    if backbone not in PLAIN:
        settings["memory_format"] = "channels-last"
        if has_bf16():
            settings["precision"] = "bf16"
        elif _has_gpu():
            settings["precision"] = "fp16"
        if config.threads is None:
            settings["threads"] = _fastest_threads()
    left = {name: value for name, value in settings.items() if name not in given}
    return dataclasses.replace(config, **left)  # type: ignore[arg-type]  # checked by the class


@functools.cache
def has_bf16() -> bool:
    """Whether the GPU or, without one, the processor computes in bfloat16."""
    import torch

    if torch.cuda.is_available():
        return bool(torch.cuda.is_bf16_supported())
    try:
        return re.search(BF16, Path("/proc/cpuinfo").read_text(encoding="utf-8")) is not None
    except OSError:
        return False


def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


def num_processors() -> int:
    """How many this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@functools.cache
def _fastest_threads() -> int:
    """1, or as many as there are processors: whichever convolves faster at this moment."""
    import torch

    cores = num_processors()
    before, seconds = torch.get_num_threads(), {}
    for threads in (1, cores):
        torch.set_num_threads(threads)
        seconds[threads] = _seconds()
    torch.set_num_threads(before)
    return min(seconds, key=seconds.__getitem__)


def _seconds(turns: int = 7) -> float:
    """The fastest of some passes of a convolution as in a small ResNet-18, backward included."""
    import torch

    kernel = torch.ones(32, 32, 3, 3, requires_grad=True)
    images = torch.ones(64, 32, 16, 16).to(memory_format=torch.channels_last)
    seconds = []
    for _ in range(turns):
        began = time.perf_counter()
        total = torch.nn.functional.conv2d(images, kernel, padding=1).sum()
        torch.autograd.grad(total, [kernel])
        seconds.append(time.perf_counter() - began)
    return min(seconds)
