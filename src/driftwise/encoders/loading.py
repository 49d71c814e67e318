"""An encoder by its name, or made of a network or a function."""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable
from typing import Any

from torch import nn

from driftwise.encoders.base import Encoder, EncoderContext
from driftwise.encoders.names import ENCODERS, LIBRARIES
from driftwise.encoders.own_network import OwnEncoder
from driftwise.encoders.random_network import AnyShapeRandomEncoder
from driftwise.errors import UserError, unknown_name


def load(encoder: Any, **options: Any) -> Encoder:
    """A fixed encoder, ready to encode.

    >>> load("random", seed=3).name
    'random 32 32 seed 3'
    >>> load(nn.Flatten()).fixed
    True

    Args:
        encoder: `efficientnet`, `resnet18-imagenet`, `mobilenetv2`, `random`, `identity`; `timm:NAME`,
            `open-clip:NAME/TAG` or `sentence-transformers:NAME` of a library; an import path
            `module:name`; a torch module; a function; or an encoder, which is returned.
        options: of pretrained encoders `size` (pixels) and, but for efficientnet, `weights` (a file);
            of timm and open-clip also `pretrained=False`; of random `seed`, `outputs`, `width`; of
            modules and functions `preprocess`, `identity` and `accepts` (see `OwnEncoder`).
    """
    if isinstance(encoder, str):
        return _by_name(encoder, options)
    if isinstance(encoder, nn.Module) or (callable(encoder) and not hasattr(encoder, "encode")):
        return _made(OwnEncoder, f"{encoder!r:.60}", (encoder,), options)
    if not all(hasattr(encoder, name) for name in ("encode", "fixed", "name")):
        raise UserError(
            f"encoder must be a name ({', '.join(_names())}), a torch module, a function or an object"
            f" with encode, fixed and name; got {encoder!r:.200}"
        )
    if not encoder.fixed:
        raise UserError(
            f"the encoder {encoder.name} learns, so that its features expire; give a fixed one"
        )
    if options:
        raise UserError(f"the encoder {encoder.name} is made; got options for it: {list(options)}")
    made: Encoder = encoder
    return made


def maker_of(name: str) -> Callable[[EncoderContext], Encoder]:
    """What makes the fixed encoder of that name for samples of a shape."""
    prefix, colon, rest = name.partition(":")
    if colon and prefix in LIBRARIES:
        library = _imported(f"driftwise.{LIBRARIES[prefix].target}")
        return functools.partial(library, model=rest)
    if colon:
        made = load(name)
        return lambda _: made
    _check_fixed(name)
    maker: Callable[[EncoderContext], Encoder] = _imported(f"driftwise.{ENCODERS[name].target}")
    return maker


def _check_fixed(name: str) -> None:
    if name == "learner":
        raise UserError(f"the encoder learner belongs to a run; use one of {', '.join(_names())}")
    if name not in ENCODERS:
        raise unknown_name("encoder", name, _names())


def _by_name(name: str, options: dict[str, Any]) -> Encoder:
    prefix, colon, rest = name.partition(":")
    if name == "random":
        return _made(AnyShapeRandomEncoder, name, (), options)
    if not colon:
        _check_fixed(name)
        return _made(_imported(f"driftwise.{ENCODERS[name].target}"), name, (None,), options)
    if prefix in LIBRARIES:
        target = _imported(f"driftwise.{LIBRARIES[prefix].target}")
        return _made(target, name, (None,), {"model": rest, **options})
    found = _imported(name)
    return load(found(**options)) if isinstance(found, type) else load(found, **options)


def _names() -> list[str]:
    return [
        *(name for name in ENCODERS if name != "learner"),
        *(f"{prefix}:NAME" for prefix in LIBRARIES),
    ]


def _imported(path: str) -> Any:
    module, _, name = path.partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise UserError(
            f"there is no encoder at {path}: {' '.join(str(error).split())}; expected a name"
            f" ({', '.join(_names())}) or an import path module:name"
        ) from error


def _made(kind: Any, name: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> Encoder:
    taken = [
        each.name
        for each in inspect.signature(kind).parameters.values()
        if each.kind is inspect.Parameter.KEYWORD_ONLY
    ]
    for option in options:
        if option not in taken:
            raise unknown_name(f"option of the encoder {name}", option, taken)
    made: Encoder = kind(*arguments, **options)
    return made
