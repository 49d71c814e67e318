"""The kinds of change that a verdict names, and what to do about each."""

from __future__ import annotations

from typing import Literal

Kind = Literal[
    "none",
    "drift",
    "new mode",
    "recurring",
    "new class",
    "mix",
    "harmless",
    "corrupted",
    "not testable",
]

ACTIONS: dict[str, str] = {
    "none": "nothing",
    "drift": "realign: replace the outdated samples of the class by fresh labelled ones",
    "new mode": "extend: keep old and new samples in proportion",
    "recurring": "restore the earlier concept from the archive; no labels",
    "new class": "ask for a name and add a class",
    "mix": "reweigh the classes; no labels",
    "harmless": "nothing: the change costs no accuracy",
    "corrupted": "quarantine the samples and look at the sensor or the annotator",
    "not testable": "wait for more samples",
}
"""what to do about each kind"""
