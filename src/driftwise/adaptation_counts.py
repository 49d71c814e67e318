"""Whether a run's adaptation had anything to act on, and why not where it had nothing."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import astuple, dataclass

NEVER_ADAPTS = "vanilla"
"""The adaptation that does nothing by design."""

Check = tuple[int, int, bool | None, bool]
"""Of a verdict: task, class, whether it drifted (None: not testable), whether it was spared."""


@dataclass(frozen=True, kw_only=True)
class Adapted:
    """Checks of single classes, counted by what came of them."""

    checks: int = 0
    untestable: int = 0
    drifted: int = 0
    """found to have drifted, the spared ones among them"""
    spared: int = 0
    adapted: int = 0
    """found to have drifted, and met with fresh samples"""

    def __add__(self, other: Adapted) -> Adapted:
        sums = map(sum, zip(astuple(self), astuple(other), strict=True))
        return Adapted(**dict(zip(vars(self), sums, strict=True)))

    @property
    def obstacle(self) -> str:
        """Why nothing was adapted; empty where something was.

        >>> Adapted(checks=60, untestable=60).obstacle
        '60 of 60 checks untestable'
        >>> Adapted(checks=60, untestable=20).obstacle
        'no drift found in 60 checks, 20 of them untestable'
        """
        if self.adapted:
            return ""
        if not self.checks:
            return "no class was checked"
        if self.untestable == self.checks:
            return f"{self.untestable} of {self.checks} checks untestable"
        if not self.drifted:
            some = f", {self.untestable} of them untestable" if self.untestable else ""
            return f"no drift found in {self.checks} checks{some}"
        why = "all of it harmless" if self.spared == self.drifted else "none of it acted on"
        return f"drift found in {self.drifted} of {self.checks} checks, {why}"

    def note(self, adaptation: str, labels: float | None) -> str:
        """That an adaptation had nothing to act on; empty where it asked for labels or never acts.

        >>> Adapted(checks=60, untestable=60).note("amr", labels=0)
        'not adapted: 60 of 60 checks untestable'
        """
        if adaptation == NEVER_ADAPTS or labels or not self.obstacle:
            return ""
        return f"not adapted: {self.obstacle}"


def count_adapted(checks: Iterable[Check], renewals: Collection[tuple[int, int]]) -> Adapted:
    """What came of each check; `renewals`: (task, class) that were met with fresh samples."""
    known = list(checks)
    drifted = [check for check in known if check[2]]
    return Adapted(
        checks=len(known),
        untestable=sum(check[2] is None for check in known),
        drifted=len(drifted),
        spared=sum(check[3] for check in drifted),
        adapted=sum(check[:2] in renewals and not check[3] for check in drifted),
    )
