from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import resource
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from run_tools import (
    ENVIRONMENT,
    command_line,
    events_of,
    lasting,
    result_of,
    snapshot,
    strict_json,
)

import driftwise
from driftwise import RunConfig
from driftwise.cli import main as cli
from driftwise.config.fields import field_docs
from driftwise.config.registry import CATALOGUE
from driftwise.config.schema import Settings
from driftwise.learner import Learner

SMALL = ["--epochs", "1", "--tasks", "[[0],[1]]"]
"""A run of two tasks with one class each: a tenth of a second."""


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands write below the current folder unless set otherwise."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "1000")


class Outcome:
    """What a command did."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def complaint(self) -> str:
        """The one line of a command that was refused."""
        assert self.code == 2, (self.code, self.err)
        assert self.out == ""
        assert self.err.endswith("\n")
        assert self.err.count("\n") == 1, self.err
        assert self.err.startswith("driftwise: error: ")
        return self.err.removeprefix("driftwise: error: ").rstrip("\n")


Call = Callable[..., Outcome]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    def call(*words: object) -> Outcome:
        capsys.readouterr()
        code = cli.command([str(word) for word in words])
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    return call


def help_of(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with pytest.raises(SystemExit) as left:
        cli.command([*words, "--help"])
    assert left.value.code == 0
    return capsys.readouterr().out


# --- help ---------------------------------------------------------------------------------------


def test_help_is_quick_and_needs_no_torch() -> None:
    code = (
        "import sys\nfrom driftwise.cli.main import command\n"
        "try: command(sys.argv[1:])\n"
        "finally: print('torch' in sys.modules, file=sys.stderr)"
    )

    def seconds(*words: str) -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(
            [sys.executable, "-c", code, *words],
            env=ENVIRONMENT,
            capture_output=True,
            text=True,
            check=True,
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert done.stdout.startswith("usage: driftwise")
        assert done.stderr == "False\n"
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    assert min(seconds("run", "--help") for _ in range(2)) < 5


def test_warnings_are_one_line_without_places_in_the_code() -> None:
    code = (
        "import sys, warnings\nfrom driftwise.cli import main\n"
        "main.command = lambda words: warnings.warn('no identity') or 0\n"
        "main.main([])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=ENVIRONMENT, capture_output=True, text=True, check=True
    )
    assert done.stderr == "driftwise: warning: no identity\n"


@pytest.mark.parametrize(("command", "without"), [("run", set()), ("compare", {"adaptation"})])
def test_the_help_of_a_command_lists_every_setting(
    command: str, without: set[str], capsys: pytest.CaptureFixture[str]
) -> None:
    text = help_of(capsys, command)
    for name, doc in field_docs(Settings).items():
        flag = f"--{name.replace('_', '-')}"
        assert bool(re.search(rf"^  {flag}\b(?!s)", text, re.MULTILINE)) is (name not in without)
        assert (doc in text) is (name not in without), name
    for flag in ("--config", "--out", "--resume", "--overwrite", "--quiet", "--json"):
        assert f"  {flag}" in text


# --- mistakes -----------------------------------------------------------------------------------

MISTAKES = {
    "": "the following arguments are required: COMMAND",
    "runn": "COMMAND must be one of demo, run, compare, report, sweep, reproduce, detect, data, "
    "serve, list, doctor, completion; got 'runn'",
    "run --buffersize 5": "unknown flag --buffersize; did you mean --buffer-size?",
    "run --metod.alpha 5": "unknown flag --metod.alpha; did you mean --method.alpha?",
    "run --detector.lvel 5": "unknown flag --detector.lvel; did you mean --detector.level?",
    "run --detector always --detector.level 0.1": "detector always has no options of its own",
    "run --detector.level 2": "the detector's level must lie between 0 and 1; got 2.0",
    "run --method err": "unknown method 'err'; did you mean 'er'?",
    "run --scope all-sen": "--scope must be one of since-last-event, all-seen, all-present; got",
    "run --num-drifts 5": "num_drifts must be 0 to 4 for 5 tasks",
    "run --buffer-size 0": "buffer_size must be at least 1; got 0",
    "run --device tpu": "device 'tpu' is not available; this machine has ",
    "run --tasks [[0,11],[1]]": "digits-cd has classes 0 to 9; the tasks name [11]",
    "run --epochs many": "--epochs must be a whole number; got 'many'",
    "run --out": "--out needs a value",
    "run --resume --overwrite": "--resume and --overwrite exclude each other; give one of them",
    "run --config nowhere.yaml": "nowhere.yaml: there is no such config file",
    "run --data .": "digits-cd comes inside a package and is read from nowhere else; for images of "
    "your own: --benchmark folder --data .",
    "run stray": "unexpected argument 'stray'; see --help",
    "compare --adaptations amr,bogus": "unknown adaptation 'bogus' ",
    "compare --adaptation amr": "unknown flag --adaptation; did you mean --adaptations?",
    "compare --num-seeds two": "--num-seeds: invalid int value: 'two'",
    "demo --detector.level 0.1": "unknown flag --detector.level; see --help",
    "report": "the following arguments are required: RUNS",
    "report nowhere": "expected a folder with runs, but nowhere is none; check the path",
}


@pytest.mark.parametrize(("line", "expected"), MISTAKES.items())
def test_a_mistake_gets_one_line_and_leaves_no_trace(
    line: str, expected: str, call: Call, tmp_path: Path
) -> None:
    assert call(*line.split()).complaint.startswith(expected)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["run", "compare", "demo"])
def test_a_folder_that_cannot_be_made_is_found_before_training(
    command: str, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Learner, "observe", None)
    (tmp_path / "file").write_text("mine")
    message = call(command, "--out", tmp_path / "file" / "below").complaint
    assert message.startswith("cannot start a run in ")
    assert message.endswith(": Not a directory")
    assert snapshot(tmp_path).keys() == {"file"}


# --- one run ------------------------------------------------------------------------------------


def test_a_run_reports_its_progress_in_plain_lines_and_its_outcome_apart(
    call: Call, tmp_path: Path
) -> None:
    outcome = call("run", *SMALL)
    assert outcome.code == 0
    folder = Path("runs/digits-cd-er-amr-seed0")
    result = result_of(tmp_path / folder)
    assert outcome.out == (
        f"FAA {result['faa']:.1f} %, forgetting {result['forgetting']:.1f}, "
        f"{result['labels']['adaptation']} labels for adaptation; in {folder}\n"
    )
    lines = outcome.err.splitlines()
    assert lines[0].startswith("preset auto: ")
    assert [line for line in lines if "done" in line] == [
        line
        for line in lines
        if re.match(r"amr: task \d/2 done, accuracy so far \d+\.\d %, ", line)
    ]
    assert not any(line.startswith("warning: ") for line in lines)
    assert re.search(r"task 2/2 done, .*loss \d+\.\d{3}, 0 s left", outcome.err)
    assert not re.search(r"[\x00-\x09\x0b-\x1f]", outcome.err), "no control characters in a file"


@pytest.mark.usefixtures("one_figure")
@pytest.mark.parametrize(
    "command",
    [
        "run --config own.yaml --out one --quiet",
        "sweep sweep.yaml --engine in-process --out all",
    ],
)
def test_a_damaged_cache_is_reported_even_in_quiet_mode(
    command: str, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRIFTWISE_CACHE", str(tmp_path / "cache"))
    images = np.random.default_rng(0).integers(0, 255, (400, 4, 4, 1), dtype=np.uint8)
    np.savez("own.npz", images=images, labels=np.arange(400) % 4)
    driftwise.load_own("own.npz")
    (file,) = (tmp_path / "cache").rglob("images.u8")
    file.write_bytes(bytes(file.stat().st_size))
    config = "{benchmark: npz, data: own.npz, epochs: 1, num_tasks: 2, backbone: mlp}"
    (tmp_path / "own.yaml").write_text(config)
    (tmp_path / "sweep.yaml").write_text(f"base: {config}\ngrid: {{adaptation: [vanilla]}}\n")
    outcome = call(*command.split())
    assert outcome.code == 0
    assert re.search("^warning: the cached own-.* is damaged and built anew", outcome.err, re.M)


def test_json_is_all_that_goes_to_the_output_and_a_quiet_run_prints_nothing(
    call: Call, tmp_path: Path
) -> None:
    outcome = call("run", *SMALL, "--out", "run", "--json", "--reference", "memory")
    assert strict_json(outcome.out) == result_of(tmp_path / "run")
    assert re.search("^warning: .*false alarms", outcome.err, re.M)
    outcome = call("run", *SMALL, "--overwrite", "--out", "run", "--quiet", "--reference", "memory")
    assert (outcome.code, outcome.out, outcome.err) == (0, "", "")


def test_a_loss_that_diverges_is_reported_in_one_line(call: Call, tmp_path: Path) -> None:
    outcome = call("run", *SMALL, "--lr", "1e6", "--weight-decay", "1e6", "--out", "run", "--quiet")
    assert (outcome.code, outcome.out) == (1, "")
    assert re.fullmatch(
        r"driftwise: failed: the loss became (nan|inf) at step \d+; try a lower learning rate\n",
        outcome.err,
    )
    assert not (tmp_path / "run" / "result.json").exists()


def test_a_lack_of_memory_is_reported_in_one_line(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: object) -> None:
        raise MemoryError("Unable to allocate 59.6 GiB")

    monkeypatch.setattr(Learner, "observe", fail)
    outcome = call("run", *SMALL, "--quiet")
    assert outcome.code == 1
    assert outcome.err == (
        "driftwise: failed: out of memory (Unable to allocate 59.6 GiB); everything up to the last "
        "checkpoint is kept: free some memory, then go on with --resume\n"
    )


@pytest.mark.parametrize("hidden", [10**8, 10**19])
def test_a_network_that_no_memory_holds_is_reported_in_one_line(
    hidden: int, call: Call, tmp_path: Path
) -> None:
    outcome = call("run", *SMALL, "--backbone", "mlp", "--backbone.hidden", f"{hidden},{hidden}")
    assert outcome.code == 1
    assert re.fullmatch(
        r"driftwise: failed: out of memory \(.*\); free some memory, or take a smaller network, "
        r"buffer or data set\n",
        outcome.err,
    )
    assert not (tmp_path / "runs").exists()


# --- files and flags ----------------------------------------------------------------------------

FLAGS = (
    "--epochs 1 --seed 3 --tasks [[0,1],[2]] --lr 1e-1 --scope all-seen --recurring-in-training "
    "--detector.level 0.01 --detector.correction none --backbone.hidden 20,10 --label-budget none"
)
FILE = """
epochs: 1
seed: 3
tasks: [[0, 1], [2]]
lr: 1e-1
scope: all-seen
recurring-in-training: true
detector: {level: 0.01, correction: none}
backbone: {name: mlp, hidden: [20, 10]}
label_budget: null
"""


def config_of(folder: Path) -> dict[str, Any]:
    config: dict[str, Any] = json.loads((folder / "config.json").read_text())
    return config


def test_a_file_and_flags_give_the_same_config(call: Call, tmp_path: Path) -> None:
    Path("config.yaml").write_text(FILE)
    assert call("run", *FLAGS.split(), "--out", "flags", "--quiet").code == 0
    assert call("run", "--config", "config.yaml", "--out", "file", "--quiet").code == 0
    config = config_of(tmp_path / "flags")
    assert config_of(tmp_path / "file") == config
    Path("saved.json").write_text(json.dumps(config))
    assert call("run", "--config", "saved.json", "--out", "file", "--resume", "--quiet").code == 0
    assert config["options"]["detector"]["level"] == 0.01
    assert config["options"]["backbone"]["hidden"] == [20, 10]
    assert lasting(tmp_path / "file") == lasting(tmp_path / "flags")


def test_a_flag_has_the_last_word_over_a_file(call: Call, tmp_path: Path) -> None:
    Path("config.yaml").write_text(FILE)
    flags = ["--seed", "4", "--detector.level", "0.2", "--backbone", "cnn"]
    assert call("run", "--config", "config.yaml", *flags, "--out", "run", "--quiet").code == 0
    config = config_of(tmp_path / "run")
    assert (config["seed"], config["epochs"]) == (4, 1)
    detector = config["options"]["detector"]
    assert (detector["level"], detector["correction"]) == (0.2, "none")
    assert config["options"]["backbone"] == {"width": 16}, "the file's options were the mlp's"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("sede: 3", "config.yaml: unknown key 'sede'; did you mean seed?"),
        ("detector: {lvel: 1}", "config.yaml: detector: unknown key 'lvel'; did you mean level?"),
        ("detector: {level: low}", "config.yaml: detector: level must be a number; got 'low'"),
        ("options: {detector: 5}", "config.yaml: detector: expected a mapping such as "),
        ("options: {detectr: {level: 1}}", "unknown part with options 'detectr'; did you mean"),
        ("method: {name: er, alpha: 1}", "method er has no options of its own"),
    ],
)
def test_a_mistake_in_a_file_gets_one_line(text: str, expected: str, call: Call) -> None:
    Path("config.yaml").write_text(text)
    assert call("run", "--config", "config.yaml", "--out", "run").complaint.startswith(expected)
    assert not Path("run").exists()


# --- a folder that is there already -------------------------------------------------------------


def without_lock(folder: Path) -> dict[str, Any]:
    files = snapshot(folder)
    del files[".lock"]  # says who held it last
    return files


@pytest.fixture
def there(call: Call, tmp_path: Path) -> Path:
    """The folder of a finished small run."""
    assert call("run", *SMALL, "--out", tmp_path / "run", "--quiet").code == 0
    return tmp_path / "run"


def test_a_folder_that_holds_a_run_is_refused_and_left_alone(call: Call, there: Path) -> None:
    before = without_lock(there)
    assert call("run", *SMALL, "--out", there).complaint == (
        f"{there} already holds a finished run; go on with --resume or start anew with --overwrite"
    )
    assert call("run", *SMALL, "--seed", 1, "--out", there, "--resume").complaint == (
        f"{there} holds a run of another config (seed: 0 there, 1 here); "
        "choose another folder or start anew with --overwrite"
    )
    assert without_lock(there) == before


def test_a_finished_run_is_resumed_at_once(
    call: Call, there: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = without_lock(there)
    monkeypatch.setattr(Learner, "observe", None)
    outcome = call("run", *SMALL, "--out", there, "--resume")
    assert outcome.code == 0
    assert outcome.out.startswith(f"FAA {result_of(there)['faa']:.1f} %")
    assert without_lock(there) == before


def stop_in_task_2(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C at the second task's first step."""
    observe, steps = Learner.observe, iter(range(10**6))

    def interrupted(self: Learner, batch: Any) -> Any:
        if set(batch.labels.tolist()) == {1} and next(steps) == 0:
            raise KeyboardInterrupt
        return observe(self, batch)

    monkeypatch.setattr(Learner, "observe", interrupted)


def test_a_folder_is_all_that_resuming_a_run_takes(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = [*SMALL, "--method", "der++", "--method.alpha", "0.3", "--seed", 4, "--buffer-size", 30]
    assert call("run", *flags, "--out", "whole").code == 0
    with monkeypatch.context() as patch:
        stop_in_task_2(patch)
        assert call("run", *flags, "--out", "part").code == 130
    assert call("run", "--resume", "--out", "part").code == 0
    assert lasting(tmp_path / "part") == lasting(tmp_path / "whole")
    # Settings that are named again must be those of the folder.
    again = ("--resume", "--out", "part", "--method", "der++", "--method.alpha", "0.3", "--seed", 4)
    assert call("run", *again).code == 0
    for wrong, message in (
        (["--buffer-size", 31], "(buffer_size: 30 there, 31 here)"),
        (["--method.alpha", "0.4"], "(options.method.alpha: 0.3 there, 0.4 here)"),
        (["--method", "er", "--seed", 5], "(method: "),
    ):
        assert message in call("run", "--resume", "--out", "part", *wrong).complaint
    assert driftwise.resume("part") == result_of(tmp_path / "part")


@pytest.mark.parametrize("command", ["run", "compare"])
def test_a_folder_without_a_run_cannot_be_resumed(call: Call, tmp_path: Path, command: str) -> None:
    before = snapshot(tmp_path)
    complaint = call(command, "--resume", "--out", "typo").complaint
    assert re.match("typo holds no runs? to resume; name the folder of ", complaint)
    assert snapshot(tmp_path) == before
    assert "--trust goes with --resume" in call(command, *SMALL, "--trust").complaint


def test_a_folder_that_names_code_or_data_is_resumed_with_trust_alone(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "mine.py").write_text(
        "from driftwise.methods.er import ER\n"
        "from pathlib import Path\n"
        "Path('imported').touch()\n"
        "class Mine(ER): pass\n"
    )
    images = np.random.default_rng(0).integers(0, 255, (400, 4, 4, 1), dtype=np.uint8)
    np.savez("own.npz", images=images, labels=np.arange(400) % 4)
    code, data = ["--method", "mine:Mine"], ["--benchmark", "npz", "--data", "own.npz"]
    for name, flags in (("code", code), ("data", data)):
        assert call("run", *SMALL, *flags, "--out", name).code == 0
    sys.modules.pop("mine")
    (tmp_path / "imported").unlink()
    for name, message in (("code", "method mine:Mine"), ("data", "data in own.npz")):
        complaint = call("run", "--resume", "--out", name).complaint
        assert f"names code or data of its own ({message}); if you trust it" in complaint
        with pytest.raises(driftwise.UserError, match="trust=True"):
            driftwise.resume(name)
        assert not (tmp_path / "imported").exists()
    assert call("run", "--resume", "--out", "code", "--trust").code == 0
    assert (tmp_path / "imported").exists()
    assert driftwise.resume("data", trust=True)["benchmark"] == "npz"
    # Whoever names them has no need to trust the folder.
    assert call("run", "--resume", "--out", "code", *code).code == 0
    assert call("run", "--resume", "--out", "data", *data).code == 0


def test_a_folder_is_all_that_resuming_a_comparison_takes(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = SimpleNamespace(warnings=(), figures=(), page="page", table="table")
    monkeypatch.setattr("driftwise.report.write_report", lambda paths, out: drawn)
    flags = [*SMALL, "--adaptations", "amr-plus,vanilla", "--num-seeds", 2, "--seed", 3]
    with monkeypatch.context() as patch:
        stop_in_task_2(patch)
        assert call("compare", *flags, "--out", "both").code == 130
    assert call("compare", "--resume", "--out", "both").code == 0
    names = {f"{name}-seed{seed}" for name in ("amr-plus", "vanilla") for seed in (3, 4)}
    assert {file.parent.name for file in (tmp_path / "both").glob("*/result.json")} == names
    wrong = call("compare", "--resume", "--out", "both", "--epochs", 2).complaint
    assert "(epochs: 1 there, 2 here)" in wrong
    # More of the same is welcome, as ever.
    assert call("compare", "--resume", "--out", "both", "--num-seeds", 3).code == 0
    assert result_of(tmp_path / "both" / "vanilla-seed5")["config"]["epochs"] == 1


@pytest.mark.parametrize(
    ("number", "code", "word"),
    [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")],
)
def test_a_signal_in_the_middle_of_a_run_is_one_line_and_loses_no_finished_task(
    number: signal.Signals,
    code: int,
    word: str,
    call: Call,
    there: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    observe = Learner.observe

    def stopped(learner: Learner, batch: Any) -> Any:
        if learner.steps == 15:  # the first task takes eleven
            signal.raise_signal(number)
        return observe(learner, batch)

    handler = signal.getsignal(number)
    with monkeypatch.context() as patch:
        patch.setattr(Learner, "observe", stopped)
        outcome = call("run", *SMALL, "--out", "stopped", "--quiet")
    assert (outcome.code, outcome.out) == (code, "")
    kept = "everything up to here is kept: go on with --resume"
    assert outcome.err == f"driftwise: {word}; {kept}\n"
    assert signal.getsignal(number) is handler
    assert [e["task"] for e in events_of(tmp_path / "stopped") if e["event"] == "scores"] == [1]
    outcome = call("run", *SMALL, "--out", "stopped", "--resume")
    assert outcome.code == 0
    assert "task 1/2" not in outcome.err
    assert lasting(tmp_path / "stopped") == lasting(there)
    assert (tmp_path / "stopped" / "events.jsonl").read_bytes() == (
        there / "events.jsonl"
    ).read_bytes()


# --- real processes -----------------------------------------------------------------------------


def test_a_run_on_a_terminal_shows_a_live_bar_and_ends_as_it_would_elsewhere(
    tmp_path: Path,
) -> None:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 120, 0, 0))
    environment = {**ENVIRONMENT, "TERM": "xterm-256color"}
    for name in ("COLUMNS", "NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE"):
        environment.pop(name, None)
    process = subprocess.Popen(
        command_line("run", "--epochs", 20, "--tasks", "[[0],[1]]", "--out", tmp_path / "run"),
        env=environment,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    shown = b""
    while True:
        try:
            portion = os.read(ours, 65536)
        except OSError:  # how Linux says that nobody writes any more
            break
        if not portion:
            break
        shown += portion
    os.close(ours)
    assert process.wait(timeout=60) == 0
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode())
    assert "\x1b[" in shown.decode()
    assert re.search(r"amr task \d/2 ", text)
    assert re.search(r"epoch \d+/20 step \d+/\d+ loss \d+\.\d{3} acc \d+ %", text)
    assert "FAA " in text

    driftwise.run(RunConfig(epochs=20, tasks=((0,), (1,))), tmp_path / "here")
    assert lasting(tmp_path / "run") == lasting(tmp_path / "here"), "in another process, too"
    assert (tmp_path / "run" / "events.jsonl").read_bytes() == (
        tmp_path / "here" / "events.jsonl"
    ).read_bytes()


def test_the_package_is_a_command() -> None:
    done = subprocess.run(
        command_line("runn"), env=ENVIRONMENT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("driftwise: error: COMMAND must be one of ")
    assert done.stderr.count("\n") == 1


def test_a_reader_that_has_gone_gets_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as gone:
        monkeypatch.setattr(sys, "stdout", gone)
        assert cli.command(["list"]) == 1
    assert capsys.readouterr().err == ""


def test_a_folder_has_no_colon_where_windows_forbids_it(monkeypatch: pytest.MonkeyPatch) -> None:
    config = RunConfig(method="er", adaptation="own_parts:Mine")
    assert ":" in cli._default_folder(config).name
    monkeypatch.setattr(cli, "IS_WINDOWS", True)
    assert cli._default_folder(config).name == "digits-cd-er-own_parts.Mine-seed0"


# --- the list -----------------------------------------------------------------------------------


def test_the_list_has_every_part_of_every_kind(call: Call) -> None:
    outcome = call("list", "--json")
    listing = strict_json(outcome.out)
    assert (outcome.code, outcome.err) == (0, "")
    assert {kind: list(entries) for kind, entries in listing.items()} == {
        kind: list(entries) for kind, entries in CATALOGUE.items()
    }
    assert "level" in listing["detector"]["ks"]["options"]
    text = call("list").out
    for kind, entries in CATALOGUE.items():
        assert f"\n{kind}\n" in f"\n{text}"
        for name, entry in entries.items():
            words = r"\s+".join(map(re.escape, entry.summary.split()))
            assert re.search(rf"^  {re.escape(name)} +{words}$", text, re.M)


def test_the_list_of_one_kind_shows_each_option_once(call: Call) -> None:
    text = call("list", "detectors").out
    assert text.startswith("detector\n")
    assert "der++" not in text
    assert text.count("--detector.correction: ") == 1
    assert re.search(r"--detector\.correction: [^(]*\(ks, mmd, c2st,\s+combined", text)
    assert list(strict_json(call("list", "detector", "--json").out)) == ["detector"]
    outcome = call("list", "detektor")
    assert outcome.code == 2
    assert "unknown kind 'detektor'" in outcome.err


# --- comparisons and reports --------------------------------------------------------------------


def test_a_comparison_leaves_runs_a_table_and_a_page(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = [*SMALL, "--num-seeds", 1, "--adaptations", "vanilla, amr", "--out", "both"]
    outcome = call("compare", *flags)
    assert outcome.code == 0
    assert re.search(r"^vanilla .*\n^amr ", outcome.out, re.MULTILINE)
    assert outcome.out.endswith("the page: both/index.html\n")
    assert (tmp_path / "both" / "index.html").stat().st_size > 1000
    for name in ("vanilla", "amr"):
        assert result_of(tmp_path / "both" / f"{name}-seed0")["adaptation"] == name

    assert "already holds a finished run" in call("compare", *flags).complaint
    before = (tmp_path / "both" / "amr-seed0" / "result.json").stat().st_mtime_ns
    drawn = SimpleNamespace(warnings=["half"], figures=(), page="page/index.html", table="table")
    monkeypatch.setattr("driftwise.report.write_report", lambda paths, out: drawn)
    again = call("report", "both", "--out", "page", "--quiet", "--json")
    assert strict_json(again.out) == {"page": "page/index.html", "figures": []}
    assert again.err == "driftwise: warning: half\n"
    assert (tmp_path / "both" / "amr-seed0" / "result.json").stat().st_mtime_ns == before


def test_the_demo_shows_three_adaptations_and_is_quick_the_second_time(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli, "RunConfig", lambda: RunConfig(epochs=1, tasks=((0,), (1,))))
    drawn = SimpleNamespace(warnings=(), figures=(), page="page", table="table")
    monkeypatch.setattr("driftwise.report.write_report", lambda paths, out: drawn)
    outcome = call("demo")
    assert outcome.code == 0
    folder = tmp_path / "runs" / "demo"
    names = {f"{name}-seed{seed}" for name in ("vanilla", "fr", "amr") for seed in range(3)}
    assert names <= {path.name for path in folder.iterdir()}
    results = {name: (folder / name / "result.json").stat().st_mtime_ns for name in names}
    with monkeypatch.context() as patch:
        patch.setattr(Learner, "observe", None)
        again = call("demo")
    assert (again.code, again.out.splitlines()[-1]) == (0, "the page: page")
    assert again.err.count("finished before") == 9
    assert {n: (folder / n / "result.json").stat().st_mtime_ns for n in names} == results
