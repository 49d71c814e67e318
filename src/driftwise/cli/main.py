"""The command line, thin: parse, call, print. Torch is imported only once there is work to do."""

from __future__ import annotations

import argparse
import io
import os
import signal
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import driftwise
from driftwise.cli.common import (
    add_command,
    add_output_flags,
    add_speed_flag,
    display,
    folder,
    is_first,
    print_outcome,
    processes,
    refuse_part_options,
)
from driftwise.cli.completion import add_completion_command
from driftwise.cli.data import add_data_command
from driftwise.cli.detect import add_detect_command
from driftwise.cli.doctor import add_doctor_command
from driftwise.cli.list import add_list_command
from driftwise.cli.serve import add_serve_command
from driftwise.cli.sweep import add_sweep_commands
from driftwise.config.config_files import from_mapping, read_config_file, split_parts, unfold_data
from driftwise.config.custom import in_one_line, place_of
from driftwise.config.flags import OneLineParser, add_flags, as_flags, coerce, split_part_options
from driftwise.config.schema import PARTS, RunConfig, Settings, changed
from driftwise.errors import RunFailure, UserError
from driftwise.files import IS_WINDOWS
from driftwise.runs.saving import Saving, Terminated

if TYPE_CHECKING:
    from driftwise.drift_loop import DriftLoop
    from driftwise.protocols import Listener
    from driftwise.runs.compare import Comparison

DONE, FAILED, USAGE = 0, 1, 2
INTERRUPTED, TERMINATED = 128 + signal.SIGINT, 128 + signal.SIGTERM

GROUPS = {
    heading: names.split()
    for heading, names in {
        "what runs": (
            "benchmark data max_per_class frozen_encoder scaling method adaptation backbone "
            "keep_features preset seed"
        ),
        "memory": "buffer_size fresh_samples buffer_policy buffer_layout buffer_device",
        "the stream": (
            "num_tasks class_order tasks num_drifts transform severity domains first_domain scope "
            "max_classes_per_drift sequential permutation_unit drift_share drift_over_tasks "
            "concept_per_class drift_seed recurring_in_training"
        ),
        "detection": ("detector encoder reference fingerprint_size monitor monitor_labels checked"),
        "labels": "min_harm realigned_logits label_budget wrong_answers hostile_answers",
        "training": (
            "epochs batch_size minibatch_size optimiser lr scheduler lr_milestones lr_drop "
            "lr_floor momentum weight_decay augmentation normalise channels precision "
            "memory_format compile cuda_graphs shard_network device threads"
        ),
    }.items()
}
"""The settings beneath each heading of the help."""


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Run a command and exit with its code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # "?" where a terminal lacks a character
    warnings.formatwarning = _as_line
    code = command(sys.argv[1:] if argv is None else list(argv))
    # While Python shuts down, an interruption would end in a traceback.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if processes() > 1:
        # Threads of torch.distributed now and then abort a process that leaves in the usual way.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def _as_line(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    line: str | None = None,
) -> str:
    """A warning without the place in the code, which says nothing here; of libraries, with it."""
    del line
    if "site-packages" in filename or not issubclass(category, UserWarning):
        return f"{filename}:{lineno}: {category.__name__}: {message}\n"
    return f"driftwise: warning: {as_flags(str(message))}\n"


def command(argv: list[str]) -> int:
    """Run a command; its exit code. A user's mistake is reported in one line."""
    previous = signal.signal(signal.SIGTERM, _terminate)
    try:
        return _call(argv)
    except UserError as error:
        return _complain(f"error: {error}", USAGE)
    except RunFailure as error:
        return _complain(f"failed: {error}", FAILED)
    except KeyboardInterrupt:
        return _complain(f"interrupted{_how_to_go_on(argv)}", INTERRUPTED)
    except Terminated:
        return _complain(f"terminated{_how_to_go_on(argv)}", TERMINATED)
    except BrokenPipeError:
        # The reader of our output is gone; Python must not complain again when it flushes.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except Exception as error:
        if _is_out_of_memory(error):
            line = f"out of memory: {' '.join(str(error).split())[:300]}"
        elif place_of(error) is not None:  # in a custom component
            line = in_one_line(error)
        elif isinstance(error, OSError):
            line = str(error)
        else:
            raise
        return _complain(f"failed: {line}", FAILED)
    finally:
        signal.signal(signal.SIGTERM, previous)


def _is_out_of_memory(error: Exception) -> bool:
    if not isinstance(error, RuntimeError):
        return isinstance(error, MemoryError)
    from driftwise.allocation import is_out_of_memory  # torch is loaded: it raised the error

    return is_out_of_memory(error)


def _call(argv: list[str]) -> int:
    words, options = split_part_options(argv, PARTS)
    try:
        arguments = parser().parse_args(words)
        arguments.options = options
        if (size := processes()) > 1 and words[0] != "run":
            raise UserError(
                f"{words[0]} works in one process, and this is one of {size}: start it without torchrun"
            )
        return _work(arguments)
    finally:
        sys.stdout.flush()  # here, where a broken pipe can still be handled


def _work(arguments: argparse.Namespace) -> int:
    try:
        code: int = arguments.call(arguments)
    except SystemExit as error:  # only a custom component calls exit
        raise RunFailure(f"a custom part ended the run: {in_one_line(error)}") from error
    return code


def _how_to_go_on(argv: list[str]) -> str:
    match argv[:1]:
        case ["demo" | "sweep" | "reproduce"]:
            return "; what is done is kept: run it again to go on"
        case ["run" | "compare"]:
            return "; everything up to here is kept: go on with --resume"
    return ""


def _terminate(*_: object) -> None:
    raise Terminated


def _complain(message: str, code: int) -> int:
    print(f"driftwise: {as_flags(message)}", file=sys.stderr)
    return code


def parser() -> OneLineParser:
    """All commands and their flags."""
    top = OneLineParser(
        prog="driftwise",
        description="Class-incremental learning in which known classes drift.",
    )
    top.add_argument("--version", action="version", version=f"driftwise {driftwise.__version__}")
    commands = top.add_subparsers(title="commands", metavar="COMMAND", required=True)
    out: dict[str, Any] = {
        "type": folder,
        "metavar": "FOLDER",
        "help": "folder for what is written (default: under runs/)",
    }
    overwrite: dict[str, Any] = {"action": "store_true", "help": "delete earlier runs first"}

    demo = add_command(
        commands, "demo", _demo, "the embedded benchmark, three adaptations side by side"
    )
    demo.add_argument("--out", default=Path("runs/demo"), **out)
    demo.add_argument("--overwrite", **overwrite)

    run = add_command(commands, "run", _run, "one run: a benchmark, a method, an adaptation")
    compare = add_command(
        commands, "compare", _compare, "one method under several adaptations and seeds"
    )
    add_flags(run, Settings, groups=GROUPS)
    add_flags(compare, Settings, groups=GROUPS, leave_out=["adaptation"])
    for each in (run, compare):
        each.add_argument(
            "--config",
            type=Path,
            metavar="FILE",
            help="settings from a YAML or JSON file, e.g. the config.json of another run",
        )
        add_speed_flag(each)
        each.add_argument("--out", **out)
        each.add_argument(
            "--resume",
            action="store_true",
            help="continue where the run stopped; only --out is needed",
        )
        each.add_argument(
            "--trust",
            action="store_true",
            help="with --resume: import the code and read the data that the folder names",
        )
        each.add_argument("--overwrite", **overwrite)
        each.add_argument(
            "--checkpoint-seconds",
            type=float,
            default=60.0,
            metavar="X",
            help="seconds between checkpoints, also within a task (default: 60)",
        )
        each.add_argument(
            "--checkpoint-steps", type=int, metavar="N", help="also save after every N steps"
        )
        each.epilog = (
            "Parts take options of their own, e.g. --detector.level 0.01 or --backbone.width 32; "
            "`driftwise list` names them."
        )
    compare.add_argument(
        "--adaptations",
        metavar="TEXT,...",
        help="adaptations to compare (default: vanilla,fr,amr)",
    )
    compare.add_argument(
        "--num-seeds", type=int, metavar="N", help="seeds, from --seed on (default: 3)"
    )

    report = add_command(
        commands, "report", _report, "the page, tables and figures of finished runs"
    )
    report.add_argument("runs", nargs="+", type=Path, metavar="RUNS", help="folders with runs")
    report.add_argument(
        "--out", type=Path, metavar="FOLDER", help="where to write (default: the first folder)"
    )
    for each in (demo, run, compare, report):
        add_output_flags(each)

    add_sweep_commands(commands)
    add_detect_command(commands)
    add_data_command(commands)
    add_serve_command(commands)

    add_list_command(commands)
    add_doctor_command(commands)
    add_completion_command(commands)
    return top


# --- run ----------------------------------------------------------------------------------------


def _run(arguments: argparse.Namespace) -> int:
    from driftwise.config.benchmarks import Notify
    from driftwise.config.presets import preset_of, resolve
    from driftwise.runs.run import start

    _refuse_contradictions(arguments)
    given = (_resumed(arguments) if arguments.resume else None) or _config(arguments)
    config = resolve(given)
    out = arguments.out or _default_folder(config)
    with display(arguments) as shown:

        def begin(loop: DriftLoop) -> Listener:
            shown.say(f"preset {config.preset}: {preset_of(given).source}")
            for warning in loop.warnings:
                shown.say(f"warning: {warning}")
            return shown.run(config.adaptation, config, len(loop.stream))

        result = start(
            config,
            out,
            begin,
            resume=arguments.resume,
            overwrite=arguments.overwrite,
            saving=_saving(arguments),
            notify=Notify(progress=shown.progress, warn=shown.warn),
        )
    if not is_first():
        return DONE
    note = result.get("adapted", {}).get("note")  # a result of an earlier version has none
    print_outcome(
        arguments,
        result,
        f"FAA {result['faa']:.1f} %, forgetting {result['forgetting']:.1f}, "
        f"{result['labels']['adaptation']} labels for adaptation"
        f"{f'; {note}' if note else ''}; in {out}",
    )
    return DONE


def _default_folder(config: RunConfig) -> Path:
    name = f"{config.benchmark}-{config.method}-{config.adaptation}-seed{config.seed}"
    if IS_WINDOWS:  # where no folder has the colon of an import path in its name
        name = name.replace(":", ".")
    return Path("runs") / name


def _refuse_contradictions(arguments: argparse.Namespace) -> None:
    if arguments.resume and arguments.overwrite:
        raise UserError("--resume and --overwrite exclude each other; give one of them")
    if arguments.trust and not arguments.resume:
        raise UserError("--trust goes with --resume: code and data named by flags need none")


def _resumed(arguments: argparse.Namespace) -> RunConfig | None:
    """The config of the run to resume; None: there is no run yet, and the flags describe it."""
    from driftwise.config.presets import resolve
    from driftwise.runs.run import saved_config, with_given
    from driftwise.runs.store import is_run

    values, options = _given(arguments)
    out = arguments.out or _default_folder(resolve(_config(arguments)))
    if not is_run(out) and (values or arguments.options):
        return None
    saved = saved_config(out, given=values.keys(), trust=arguments.trust)
    saved = with_given(saved, out, values, {})
    return with_given(saved, out, {}, _options(arguments, saved, options))


def _saving(arguments: argparse.Namespace) -> Saving:
    return Saving(seconds=arguments.checkpoint_seconds, steps=arguments.checkpoint_steps)


# --- demo, compare, report ----------------------------------------------------------------


def _demo(arguments: argparse.Namespace) -> int:
    from driftwise.runs.compare import Comparison

    refuse_part_options(arguments)
    # A second `demo` shows the page again at once instead of refusing its own folder.
    resume = not arguments.overwrite
    return _run_comparison(Comparison(base=RunConfig()), arguments, arguments.out, resume=resume)


def _compare(arguments: argparse.Namespace) -> int:
    from driftwise.runs.compare import Comparison

    _refuse_contradictions(arguments)
    base = _config(arguments)
    out = arguments.out or Path("runs") / f"compare-{base.benchmark}-{base.method}"
    adaptations, num_seeds = Comparison.adaptations, Comparison.num_seeds
    if arguments.resume and (saved := _saved_comparison(arguments, out)):
        base, adaptations, num_seeds = saved.base, saved.adaptations, saved.num_seeds
    if arguments.adaptations is not None:
        adaptations = tuple(name.strip() for name in arguments.adaptations.split(","))
    if arguments.num_seeds is not None:
        num_seeds = arguments.num_seeds
    comparison = Comparison(base=base, adaptations=adaptations, num_seeds=num_seeds)
    return _run_comparison(
        comparison, arguments, out, resume=arguments.resume, saving=_saving(arguments)
    )


def _saved_comparison(arguments: argparse.Namespace, out: Path) -> Comparison | None:
    """The comparison whose runs a folder holds; None: there are none, and the flags describe it."""
    from driftwise.runs.compare import comparison_of
    from driftwise.runs.run import saved_runs, with_given

    values, options = _given(arguments)
    saved = saved_runs(out, given=values.keys(), trust=arguments.trust)
    asked = values or arguments.options or arguments.adaptations or arguments.num_seeds
    if not saved and not asked:
        raise UserError(f"{out} holds no runs to resume; name the folder of a comparison")
    if not saved:
        return None
    first_seed = values.pop("seed", None)
    for name, config in saved.items():
        same = with_given(config, out / name, values, {})
        with_given(same, out / name, {}, _options(arguments, same, options))
    return comparison_of(list(saved.values()), first_seed=first_seed)


def _run_comparison(
    comparison: Comparison, arguments: argparse.Namespace, out: Path, **how: Any
) -> int:
    from driftwise.report import write_report
    from driftwise.runs.compare import compare

    num_runs = len(comparison.adaptations) * comparison.num_seeds
    with display(arguments, num_runs=num_runs) as shown:
        paths = compare(comparison, out, overwrite=arguments.overwrite, display=shown, **how)
        shown.say("drawing the page")
    return _print_report(arguments, write_report(paths, out))


def _report(arguments: argparse.Namespace) -> int:
    from driftwise.report import write_report

    refuse_part_options(arguments)
    return _print_report(
        arguments, write_report(arguments.runs, arguments.out or arguments.runs[0])
    )


def _print_report(arguments: argparse.Namespace, report: Any) -> int:
    for warning in report.warnings:
        _complain(f"warning: {warning}", DONE)
    outcome = {"page": str(report.page), "figures": [str(path) for path in report.figures]}
    print_outcome(arguments, outcome, f"{report.table}\n\nthe page: {report.page}")
    return DONE


# --- settings from flags and files --------------------------------------------------------------


def _given(arguments: argparse.Namespace) -> tuple[dict[str, Any], dict[str, Any]]:
    """The settings in the file and the flags, and the file's options of components.

    A flag overrides the file.
    """
    values: dict[str, Any] = {}
    options: dict[str, Any] = {}
    if arguments.config is not None:
        in_file = unfold_data(read_config_file(arguments.config), source=str(arguments.config))
        settings, options = split_parts(in_file, PARTS)
        values |= from_mapping(RunConfig, settings, source=str(arguments.config))
        options = {**values.pop("options", {}), **options}  # a saved config has them apart
    given = {name: getattr(arguments, name) for name in vars(Settings()) if name in arguments}
    for part in options.keys() & given.keys():
        if given[part] != values.get(part):
            del options[part]  # they belong to the component that the flag replaces
    return values | given, options


def _config(arguments: argparse.Namespace) -> RunConfig:
    """The config that the file and the flags describe together."""
    values, options = _given(arguments)
    config = RunConfig(**values)
    config = changed(config, options=_options(arguments, config, options))
    if arguments.speed == "exact":
        return config
    from driftwise.config.speed import fast

    return fast(config, given=values)


def _options(
    arguments: argparse.Namespace, config: RunConfig, in_file: dict[str, Any]
) -> dict[str, dict[str, Any]]:
    """Options of the components that a config names, from the file and from flags."""
    from driftwise.config.presets import options_type

    options = {}
    for part in {*in_file, *arguments.options}:
        kind = options_type(config, part)
        written = from_mapping(kind, in_file.get(part, {}), source=f"{arguments.config}: {part}")
        options[part] = written | coerce(kind, arguments.options.get(part, {}), part=part)
    return options
