from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from sample_configs import Base, Config

from driftwise.config.fields import field_docs


def test_field_docs_are_the_strings_beneath_the_fields_inherited_ones_included() -> None:
    docs = field_docs(Config)
    assert list(docs) == [f.name for f in dataclasses.fields(Config)][:-1]
    assert docs["seed"] == "what all randomness is drawn from"
    assert docs["lr"] == "step size of gradient descent"
    assert docs["scope"] == "which classes drift"


def test_a_subclass_may_give_a_field_a_new_default_and_keep_its_docstring() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Renewed(Base):
        seed: int = 7
        lr: float = 0.5
        """slower"""

    assert field_docs(Renewed) == {
        "seed": "what all randomness is drawn from",
        "lr": "slower",
    }
