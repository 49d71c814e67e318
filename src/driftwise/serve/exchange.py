"""Label requests and answers as files: CSV, JSONL, Label Studio's JSON."""

from __future__ import annotations

import base64
import csv
import io
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from driftwise.errors import UserError
from driftwise.files import parse_json
from driftwise.report.table import csv_text
from driftwise.serve.board import Card
from driftwise.serve.bodies import refuse_many_items
from driftwise.serve.settings import ServeSettings

CSV_TYPE, JSONL_TYPE, STUDIO_TYPE = "text/csv", "application/x-ndjson", "application/json"
IMPORT_TYPES = (CSV_TYPE, JSONL_TYPE, STUDIO_TYPE)
MAX_LABELS = 100_000
COLUMNS = ("id", "predicted", "name", "confidence", "text", "label")
ANSWER_COLUMNS = ("id", "label", "by", "time", "corrects")

Export = tuple[bytes, str, str]
"""content, content type, file name"""


def _line(card: Card, settings: ServeSettings) -> dict[str, Any]:
    return {
        "id": card.id,
        "predicted": card.predicted,
        "name": settings.name_of(card.predicted),
        "confidence": round(card.confidence, 6),
        "text": card.text,
        "label": None,
    }


def to_csv(cards: Sequence[Card], settings: ServeSettings) -> Export:
    """A line per sample; `label` is empty, to be filled in."""
    lines = [[line[name] for name in COLUMNS] for line in (_line(card, settings) for card in cards)]
    return csv_text([COLUMNS, *lines]).encode(), CSV_TYPE, "requests.csv"


def to_jsonl(cards: Sequence[Card], settings: ServeSettings) -> Export:
    """A JSON object per sample, its values in `x`."""
    lines = [
        json.dumps({**_line(card, settings), "x": card.sample.tolist()}, allow_nan=False)
        for card in cards
    ]
    return ("\n".join(lines) + "\n" * bool(lines)).encode(), JSONL_TYPE, "requests.jsonl"


def to_label_studio(cards: Sequence[Card], settings: ServeSettings) -> Export:
    """Tasks for Label Studio, the model's class as a prediction."""
    from driftwise.serve.views import png_of  # late: it imports much else

    tasks = []
    for card in cards:
        data: dict[str, Any] = {"driftwise_id": card.id}
        to_name = "text"
        if card.text is not None:
            data["text"] = card.text
        elif (picture := png_of(card.sample)) is not None:
            to_name = "image"
            data["image"] = f"data:image/png;base64,{base64.b64encode(picture).decode()}"
        else:
            data["text"] = " ".join(f"{value:.6g}" for value in card.sample.reshape(-1).tolist())
        prediction = {
            "model_version": "driftwise",
            "score": round(card.confidence, 6),
            "result": [_choice(settings.name_of(card.predicted), to_name)],
        }
        tasks.append({"id": card.id, "data": data, "predictions": [prediction]})
    return json.dumps(tasks).encode(), STUDIO_TYPE, "tasks.json"


def _choice(name: str, to_name: str) -> dict[str, Any]:
    value = {"choices": [name]}
    return {"from_name": "label", "to_name": to_name, "type": "choices", "value": value}


def answers_as(
    format: str, answers: Sequence[Mapping[str, Any]], settings: ServeSettings
) -> Export:
    """Labels of people, as `read_labels` takes them; classes by name."""
    named = [
        {**each, "label": None if each["label"] is None else settings.name_of(each["label"])}
        for each in answers
    ]
    if format == "csv":
        lines = [[line[name] for name in ANSWER_COLUMNS] for line in named]
        return csv_text([ANSWER_COLUMNS, *lines]).encode(), CSV_TYPE, "answers.csv"
    if format == "jsonl":
        text = "".join(f"{json.dumps(line)}\n" for line in named)
        return text.encode(), JSONL_TYPE, "answers.jsonl"
    tasks = []
    for line in named:
        result = [] if line["label"] is None else [_choice(line["label"], "text")]
        data = {"driftwise_id": line["id"], "text": f"sample {line['id']}", "by": line["by"]}
        tasks.append({"id": line["id"], "data": data, "annotations": [{"result": result}]})
    return json.dumps(tasks).encode(), STUDIO_TYPE, "answers.json"


EXPORTS: Mapping[str, Callable[[Sequence[Card], ServeSettings], Export]] = {
    "csv": to_csv,
    "jsonl": to_jsonl,
    "label-studio": to_label_studio,
}


def read_labels(
    body: bytes, kind: str, settings: ServeSettings
) -> tuple[list[int], list[int | None]]:
    """Ids and labels of a file; lines without a label are left out."""
    refuse_many_items(body)
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError("the file is no UTF-8 text") from error
    try:
        pairs = {CSV_TYPE: _from_csv, JSONL_TYPE: _from_jsonl, STUDIO_TYPE: _from_label_studio}[
            kind
        ](text)
    except (ValueError, RecursionError, csv.Error) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"the file cannot be read: {error}") from error
    if len(pairs) > MAX_LABELS:
        raise UserError(f"expected at most {MAX_LABELS:,} labels in a file; got more")
    numbers = {name: label for label, name in enumerate(settings.class_names)}
    return [int(number) for number, _ in pairs], [_label(each, numbers) for _, each in pairs]


def _label(given: object, numbers: Mapping[str, int]) -> int:
    """A label by name or number."""
    text = str(given).strip()
    if text in numbers:
        return numbers[text]
    if text.isdecimal() and len(text) < 10:
        return int(text)
    raise UserError(f"unknown class {text!r:.100}; give its number or its name")


def _from_csv(text: str) -> list[tuple[int, object]]:
    reader = csv.DictReader(io.StringIO(text, newline=""))
    if not {"id", "label"} <= set(reader.fieldnames or ()):
        raise UserError("expected the columns id and label in the first line")
    pairs = ((_id(row["id"]), row["label"]) for row in reader if (row["label"] or "").strip())
    return list(itertools.islice(pairs, MAX_LABELS + 1))


def _from_jsonl(text: str) -> list[tuple[int, object]]:
    pairs = []
    for line in filter(str.strip, text.splitlines()):
        found = parse_json(line)
        if not isinstance(found, dict) or "id" not in found:
            raise UserError("expected an object with id and label in each line")
        if found.get("label") is not None:
            pairs.append((_id(found["id"]), found["label"]))
    return pairs


def _from_label_studio(text: str) -> list[tuple[int, object]]:
    """The first choice of the first annotation of each task that has one and was not skipped."""
    tasks = parse_json(text)
    if not isinstance(tasks, list):
        raise UserError("expected a list of tasks, as Label Studio exports it")
    pairs = []
    for task in tasks:
        try:
            number = _id(task["data"]["driftwise_id"])
            done = [each for each in task.get("annotations", ()) if not each.get("was_cancelled")]
            choices = [
                choice
                for each in done[:1]
                for result in each["result"]
                if result["type"] == "choices"
                for choice in result["value"]["choices"]
            ]
        except (KeyError, TypeError, AttributeError) as error:
            raise UserError(
                "expected tasks with data.driftwise_id and annotations of choices"
            ) from error
        if choices:
            pairs.append((number, choices[0]))
    return pairs


def _id(value: object) -> int:
    text = str(value).strip()
    if isinstance(value, bool) or not text.isdecimal() or len(text) > 18:
        raise UserError(f"an id is a whole number; got {text!r:.100}")
    return int(text)
