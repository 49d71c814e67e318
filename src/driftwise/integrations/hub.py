"""Runs on the Hugging Face hub: weights as safetensors, settings, results and a model card.

    url = push_to_hub("runs/mine", "me/drift-digits")
    predictor = from_hub("me/drift-digits")
    predictor.predict(images)

Nothing is pickled, and of what is downloaded only JSON, Markdown and safetensors are read.
"""

from __future__ import annotations

import dataclasses
import json
import os
import socket
import tempfile
import urllib.parse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

import driftwise
from driftwise.config.build import frozen_of
from driftwise.config.config_files import from_mapping
from driftwise.config.learners import make_learner
from driftwise.config.schema import RunConfig
from driftwise.errors import RunFailure, UserError
from driftwise.runs.predictor import Predictor, load, refuse_own_code
from driftwise.runs.store import read_config, read_result
from driftwise.scaling import Scaling

WEIGHTS, SETTINGS, RESULT, CARD = "model.safetensors", "config.json", "result.json", "README.md"
_SCALING = "scaling."
_FORMAT = 1
_PRIVATE = ("data",)
"""settings that name places on the machine of the run"""
_SECONDS = 5.0
"""how long the hub may take to answer the first time"""


def push_to_hub(
    run: str | os.PathLike[str],
    repo_id: str,
    *,
    private: bool | None = None,
    token: str | None = None,
    revision: str | None = None,
    endpoint: str | None = None,
    trust_imports: bool = False,
) -> str:
    """Put a finished run on the hub, in a repository that is made if there is none; its address.

    Args:
        run: the folder of the run.
        repo_id: `name` or `owner/name`.
        private: whether only its owner sees a new repository. None: as the owner has it.
        token: None: the one that `hf auth login` has kept.
        revision: the branch. None: main.
        endpoint: the address of another hub. None: `HF_ENDPOINT`, or huggingface.co.
        trust_imports: import what the run names by `module:name`.
    """
    hub = _hub()
    with tempfile.TemporaryDirectory() as folder:
        export(run, folder, trust_imports=trust_imports)
        api = hub.HfApi(endpoint=endpoint, token=token, library_name="driftwise")
        _refuse_out_of_reach(api.endpoint)
        with _errors_of(hub, repo_id):
            made = api.create_repo(repo_id, private=private, exist_ok=True)
            api.upload_folder(
                repo_id=made.repo_id,
                folder_path=folder,
                revision=revision,
                commit_message="A run of driftwise",
            )
    return str(made)


def from_hub(
    repo_id: str | os.PathLike[str],
    *,
    revision: str | None = None,
    token: str | None = None,
    endpoint: str | None = None,
    trust_imports: bool = False,
) -> Predictor:
    """The predictor of a run on the hub, or in a folder that `export` wrote.

    What was downloaded before is used where the hub is out of reach. A run may name code of its own
    by an import path, which is imported only with `trust_imports`.
    """
    if str(repo_id) and Path(repo_id).is_dir():
        return _read(Path(repo_id), trust_imports=trust_imports)
    if not _is_repo_id(str(repo_id)):
        raise UserError(f"expected a folder or a repository owner/name; got {str(repo_id)!r}")
    hub = _hub()
    api = hub.HfApi(endpoint=endpoint, token=token, library_name="driftwise")
    wanted = {"revision": revision, "allow_patterns": [WEIGHTS, SETTINGS, RESULT, CARD]}
    try:
        _refuse_out_of_reach(api.endpoint)
    except RunFailure as failure:
        try:
            folder = api.snapshot_download(str(repo_id), local_files_only=True, **wanted)
        except (OSError, ValueError):
            raise failure from None
    else:
        with _errors_of(hub, str(repo_id)):
            folder = api.snapshot_download(str(repo_id), **wanted)
    return _read(Path(folder), trust_imports=trust_imports)


def export(
    run: str | os.PathLike[str], folder: str | os.PathLike[str], *, trust_imports: bool = False
) -> None:
    """Write what goes on the hub into a folder: weights, settings, result and model card.

    Raises:
        UserError: the folder has other files of these names, such as those of a run.
    """
    _refuse_other_files(Path(folder))
    result = read_result(run)
    predictor = load(run, trust_imports=trust_imports)
    tensors = {name: value.contiguous() for name, value in predictor.network.state_dict().items()}
    settings = {key: value for key, value in read_config(run).items() if key not in _PRIVATE}
    about: dict[str, Any] = {
        "library_name": "driftwise",
        "format": _FORMAT,
        "version": driftwise.__version__,
        "run": settings,
        "class_names": list(predictor.class_names),
        "image_shape": list(predictor.image_shape),
        "input_shape": list(predictor.input_shape),
        "feature_names": list(predictor.feature_names),
    }
    if predictor.scaling is not None:
        state = predictor.scaling.state_dict()
        about["scaling"] = {k: v for k, v in state.items() if not isinstance(v, Tensor)}
        tensors |= {_SCALING + k: v for k, v in state.items() if isinstance(v, Tensor)}
    published = {**result, "config": settings}
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    safetensors.torch.save_file(_without_shared(tensors), target / WEIGHTS, {"format": "pt"})
    (target / SETTINGS).write_text(json.dumps(about, indent=1, allow_nan=False) + "\n")
    (target / RESULT).write_text(json.dumps(published, indent=1, allow_nan=False) + "\n")
    (target / CARD).write_text(model_card(published))


def model_card(result: Mapping[str, Any]) -> str:
    """A README with front matter for the hub, made from a run's result: drifts, labels, costs."""
    names = [_plain(name) for name in result["class_names"]]
    found = {(each["task"], each["class"]): each["drifted"] for each in result["verdicts"]}
    words = {True: "found", False: "not found", None: "could not be tested"}
    history = [
        f"| {event['task']} | {names[label]} | {_plain(event['transform'])} "
        f"| {words.get(found.get((event['task'], label)), 'not checked')} |"
        for event in result["drift_events"]
        for label in event["classes"]
    ]
    false_alarms = sum(
        drifted is True
        and not any(
            t == event["task"] and c in event["classes"] for event in result["drift_events"]
        )
        for (t, c), drifted in found.items()
    )
    labels, seconds = result["labels"], result["seconds"]
    title = f"{_plain(result['method'])} with {_plain(result['adaptation'])}"
    return "\n".join(
        [
            "---",
            "library_name: driftwise",
            "tags: [continual-learning, concept-drift, class-incremental-learning]",
            "pipeline_tag: image-classification"
            if result.get("config", {}).get("scaling") is None
            else "pipeline_tag: tabular-classification",
            "model-index:",
            f"- name: {json.dumps(title)}",
            "  results:",
            "  - task: {type: classification}",
            f"    dataset: {{name: {json.dumps(_plain(result['benchmark']))}, type: stream}}",
            "    metrics:",
            f"    - {{type: accuracy, name: final average accuracy, value: {result['faa']:.2f}}}",
            "---",
            f"# {title} on {_plain(result['benchmark'])}",
            "",
            f"A classifier of {len(names)} classes that learned them in {len(result['tasks'])} tasks "
            f"while classes drifted; seed {result['seed']}, {result['buffer_size']} samples kept.",
            "",
            "```python",
            "from driftwise.integrations.hub import from_hub",
            "",
            'predictor = from_hub("OWNER/NAME")  # this repository',
            "classes = predictor.predict(samples)",
            "```",
            "",
            "| | |",
            "|---|---|",
            f"| final average accuracy | {result['faa']:.1f} % |",
            f"| of classes that drifted | {_percent(result['faa_drifted'])} |",
            f"| of classes that did not | {_percent(result['faa_stable'])} |",
            f"| forgetting | {result['forgetting']:.1f} points |",
            "",
            "## Drift history",
            "",
            *(["| task | class | drift | verdict then |", "|---|---|---|---|"] if history else []),
            *(history or ["No class drifted."]),
            "",
            f"False alarms: {false_alarms}. Detector: {_plain(result['detector'])}.",
            "",
            "## Labels and costs",
            "",
            "| | |",
            "|---|---|",
            *(f"| labels, {name} | {count} |" for name, count in labels.items()),
            *(f"| seconds, {name} | {value:.1f} |" for name, value in seconds.items()),
            f"| gradient steps | {result['gradient_steps']} |",
            "",
            f"Classes: {', '.join(names[:50])}{', ...' if len(names) > 50 else ''}.",
            "Accuracy is that on the stream that it learned from; it says nothing of other data.",
            "",
        ]
    )


def _refuse_other_files(target: Path) -> None:
    """UserError where `export` would write over what it has not written."""
    if target.exists() and not target.is_dir():
        raise UserError(f"{target} is a file; name a folder to export to")
    there = [name for name in (WEIGHTS, SETTINGS, RESULT, CARD) if (target / name).exists()]
    try:
        about = json.loads((target / SETTINGS).read_text(encoding="utf-8"))
        is_ours = about["library_name"] == "driftwise"
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        is_ours = False
    if there and not is_ours:
        raise UserError(
            f"{target} has files that were not exported ({', '.join(there)}), and would be written "
            "over; name another folder"
        )


def _read(folder: Path, *, trust_imports: bool) -> Predictor:
    """The predictor of a folder that `export` wrote, perhaps on a stranger's machine."""
    try:
        about = json.loads((folder / SETTINGS).read_text(encoding="utf-8"))
        tensors = safetensors.torch.load_file(folder / WEIGHTS)
        if about["library_name"] != "driftwise" or about["format"] != _FORMAT:
            raise KeyError("format")
        saved, names = dict(about["run"]), tuple(map(str, about["class_names"]))
        shape, raw = tuple(about["input_shape"]), tuple(about["image_shape"])
        features = tuple(map(str, about.get("feature_names", ())))
    except (OSError, ValueError, KeyError, TypeError, RecursionError, SafetensorError) as error:
        raise UserError(
            f"{folder} holds no run that push_to_hub or export of this version wrote: "
            f"{type(error).__name__} {error}"
        ) from error
    if broken := [name for name, each in tensors.items() if not bool(each.isfinite().all())]:
        raise UserError(
            f"the weights in {folder} are not finite ({broken[0]}): the file is damaged, or was made from "
            "a network that had diverged; get it again, or take another run"
        )
    source = str(folder / SETTINGS)
    config = RunConfig(**from_mapping(RunConfig, saved, source=source))  # type: ignore[arg-type]
    refuse_own_code(config, folder, trust_imports=trust_imports)
    config = dataclasses.replace(config, device="auto", memory_format="contiguous")
    dtype = torch.float32 if len(shape) == 1 else torch.uint8
    try:
        learner = make_learner(config, shape, len(names), dtype=dtype)
    except UserError:
        raise
    except (RuntimeError, TypeError, ValueError, MemoryError) as error:
        raise UserError(
            f"the settings in {folder} make no network: {str(error).splitlines()[0]}"
        ) from error
    weights = {name: each for name, each in tensors.items() if not name.startswith(_SCALING)}
    scaling = None
    try:
        learner.predictor.load_state_dict(weights)
        if (kept := about.get("scaling")) is not None:
            scaling = Scaling(kept["kind"], limit=kept["limit"])
            fitted = {
                name.removeprefix(_SCALING): each
                for name, each in tensors.items()
                if name.startswith(_SCALING)
            }
            scaling.load_state_dict({**kept, **fitted})
    except (RuntimeError, KeyError, TypeError, ValueError) as error:
        raise UserError(
            f"the weights in {folder} do not fit its settings: {str(error).splitlines()[0]}"
        ) from error
    return Predictor(
        *(learner, names, raw),
        input_shape=shape,
        encoder=frozen_of(config),
        scaling=scaling,
        feature_names=features,
    )


def _without_shared(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copies of tensors that share memory: safetensors keeps each by itself."""
    return {name: value.detach().cpu().clone() for name, value in tensors.items()}


def _hub() -> Any:
    try:
        import huggingface_hub
    except ImportError as error:
        raise UserError(
            "the hub needs the package huggingface_hub: pip install 'driftwise[hub]'"
        ) from error
    return huggingface_hub


class _errors_of:  # noqa: N801  (a context manager)
    """Short errors in place of the client's."""

    def __init__(self, hub: Any, repo_id: str) -> None:
        self._hub, self._repo_id = hub, repo_id

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        errors = self._hub.errors
        if isinstance(error, errors.HFValidationError):
            raise UserError(
                f"{self._repo_id!r} is no repository id; expected owner/name"
            ) from error
        if isinstance(error, errors.RepositoryNotFoundError | errors.RevisionNotFoundError):
            raise UserError(
                f"the hub has no repository or revision like that ({self._repo_id}), or your token "
                "may not see it: check the name, or log in (hf auth login)"
            ) from error
        if isinstance(error, errors.HfHubHTTPError):
            status = getattr(error.response, "status_code", "no status")
            hint = ": log in with a token that may write (hf auth login)" * (status in (401, 403))
            raise RunFailure(f"the hub refused {self._repo_id} with {status}{hint}") from error
        if isinstance(error, OSError):
            raise RunFailure(f"the hub could not be reached: {error}") from error


def _refuse_out_of_reach(endpoint: str) -> None:
    """RunFailure at once where the hub cannot be reached: its client would try for half a minute."""
    if _hub().is_offline_mode():
        raise RunFailure("the hub is switched off here (HF_HUB_OFFLINE); unset it to reach the hub")
    address = urllib.parse.urlsplit(endpoint)
    if any(os.environ.get(name) for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY")):
        return  # the proxy finds the way
    port = address.port or (443 if address.scheme == "https" else 80)
    try:
        socket.create_connection((address.hostname or "", port), timeout=_SECONDS).close()
    except OSError as error:
        raise RunFailure(
            f"the hub at {endpoint} cannot be reached ({error}); folders work without it: "
            "export(run, folder), from_hub(folder)"
        ) from error


def _is_repo_id(name: str) -> bool:
    owner, slash, own = name.rpartition("/")
    return all(part and part.strip(".") for part in ((owner, own) if slash else (own,)))


def _plain(text: object) -> str:
    """A text that Markdown takes for a text, in one line."""
    line = " ".join(str(text).split())
    return "".join(f"\\{sign}" if sign in r"\`*_[]<>|#" else sign for sign in line)


def _percent(value: float | None) -> str:
    return "none" if value is None else f"{value:.1f} %"
