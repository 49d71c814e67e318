"""A typed config in a file: YAML or JSON, read strictly."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from driftwise.config.fields import did_you_mean, fields_of, known_names, read, shown
from driftwise.errors import UserError
from driftwise.files import MAX_DIGITS, parse_json, too_long

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def read_config_file(path: str | Path) -> dict[str, object]:
    """The mapping a YAML or JSON file holds."""
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise UserError(f"{path}: there is no such config file") from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise UserError(f"{path}:{line}: not UTF-8 text; expected a YAML or JSON file") from None
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from None
    content = _parse_json(text, path) if path.suffix == ".json" else _parse_yaml(text, path)
    if not isinstance(content, dict):
        came = "an empty file" if content is None else shown(content)
        raise UserError(f"{path}:1: expected lines such as 'seed: 0'; got {came}")
    return content


def unfold_data(mapping: Mapping[str, object], *, source: str) -> dict[str, object]:
    """A file's `data: {folder: photos, size: 32}` as the benchmark that reads such data.

    >>> unfold_data({"data": {"folder": "photos", "size": 32}, "seed": 1}, source="mine.yaml")
    {'seed': 1, 'benchmark': {'name': 'folder', 'size': 32}, 'data': 'photos'}
    """
    data = mapping.get("data")
    if not isinstance(data, Mapping):
        return dict(mapping)
    kinds = [kind for kind in OWN_DATA if kind in data]
    if len(kinds) != 1 or "benchmark" in mapping:
        raise UserError(
            f"{source}: data takes one of {', '.join(OWN_DATA)} with its path, and stands in the "
            f"place of a benchmark"
        )
    options = {key: value for key, value in data.items() if key != kinds[0]}
    rest = {key: value for key, value in mapping.items() if key != "data"}
    return {**rest, "benchmark": {"name": kinds[0], **options}, "data": data[kinds[0]]}


OWN_DATA = ("folder", "npz", "table")
"""The benchmarks that read the user's data."""


def split_parts(
    mapping: Mapping[str, object], part_keys: Iterable[str]
) -> tuple[dict[str, object], dict[str, dict[str, object]]]:
    """A file's `method: {name: er, alpha: 0.2}` as the choice and the options of the part.

    >>> split_parts({"method": {"name": "er", "alpha": 0.2}, "seed": 1}, ["method"])
    ({'method': 'er', 'seed': 1}, {'method': {'alpha': 0.2}})
    """
    parts = set(part_keys)
    settings: dict[str, object] = {}
    options: dict[str, dict[str, object]] = {}
    for key, value in mapping.items():
        part = str(key).replace("-", "_")
        if part not in parts or not isinstance(value, Mapping):
            settings[key] = value
            continue
        if "name" in value:
            settings[key] = value["name"]
        if own := {option: setting for option, setting in value.items() if option != "name"}:
            options[part] = own
    return settings, options


def from_mapping(cls: type[DataclassInstance], values: object, *, source: str) -> dict[str, object]:
    """The values given, by field name and in the fields' types; complaints begin with `source`."""
    if not isinstance(values, Mapping):
        raise UserError(f"{source}: expected a mapping such as 'level: 0.01'; got {shown(values)}")
    known = fields_of(cls)
    result: dict[str, object] = {}
    for key, value in values.items():
        name = str(key).replace("-", "_")
        if name not in known:
            hint = did_you_mean(name, known) or known_names(known)
            raise UserError(f"{source}: unknown key {str(key)!r}{hint}")
        if name in result:
            raise UserError(f"{source}: {name} is given twice, with '-' and with '_'; keep one")
        result[name] = read(known[name], value, name=f"{source}: {name}", is_text=False)
    return result


def _parse_json(text: str, path: Path) -> object:
    """JSON by its own rules: YAML would stumble over tabs and pairs of escapes."""

    def once(pairs: list[tuple[str, object]]) -> dict[str, object]:
        found: dict[str, object] = {}
        for key, value in pairs:
            if key in found:
                raise UserError(f"{path}: {key} is given twice; keep one")
            found[key] = value
        return found

    try:
        return parse_json(text, object_pairs_hook=once)
    except json.JSONDecodeError as error:
        raise UserError(f"{path}:{error.lineno}: not JSON: {error.msg}") from None
    except UserError:
        raise
    except ValueError as error:  # a number of too many digits
        raise UserError(f"{path}: {error}") from None
    except RecursionError:
        raise UserError(f"{path}: nested too deeply") from None


def _parse_yaml(text: str, path: Path) -> object:
    import yaml  # here, because most commands never read a file

    class Loader(yaml.SafeLoader):
        """Refuses a key given twice, where YAML's own loader keeps the last one silently."""

        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
            seen = set()
            for key, _ in node.value:
                if isinstance(key, yaml.ScalarNode) and key.value in seen:
                    line = key.start_mark.line + 1
                    raise UserError(f"{path}:{line}: {key.value} is given twice; keep one")
                seen.add(key.value if isinstance(key, yaml.ScalarNode) else key)
            return super().construct_mapping(node, deep)

        def construct_yaml_int(self, node: yaml.ScalarNode) -> int:
            if len(node.value) > MAX_DIGITS:  # of which 1:30:00 and 0xff make more than they have
                line = node.start_mark.line + 1
                raise UserError(f"{path}:{line}: {too_long(node.value)}")
            return int(super().construct_yaml_int(node))

    Loader.add_constructor("tag:yaml.org,2002:int", Loader.construct_yaml_int)
    try:
        return yaml.load(text, Loader)  # a SafeLoader: plain values, no tags
    except UserError:
        raise
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        raise UserError(f"{path}:{line}: not YAML: {error.problem or error.context}") from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise UserError(f"{path}:{line}: not YAML: {error.reason}") from None
    except (ValueError, OverflowError) as error:  # an impossible date, 1:59:59 without end
        raise UserError(f"{path}: {error}") from None
    except RecursionError:
        raise UserError(f"{path}: nested too deeply") from None
