"""One batch after the other: predict, watch, mend, teach. The order is all that is decided here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from driftwise import rng
from driftwise.config.presets import settled
from driftwise.config.schema import RunConfig
from driftwise.drift_handler import DriftHandler
from driftwise.errors import Diverged
from driftwise.live.components import LiveParts, monitor_of
from driftwise.live.input_statistics import ENOUGH
from driftwise.live.inputs import UNKNOWN
from driftwise.live.label_requests import Answer, LabelRequester
from driftwise.live.label_source import FEWEST_FRESH, LiveLabels, take_up
from driftwise.live.priority import yield_to_predictions
from driftwise.live.settings import LiveSettings
from driftwise.live.window import Track, Window
from driftwise.protocols import AdaptationContext
from driftwise.runs.task_state import verdict_from
from driftwise.stats.fraction import estimate_shares
from driftwise.types import AdaptationResult, Samples, Verdict

MOST_REPLAY_STEPS, FEW_REPLAY_STEPS = 8, 2
"""for small networks, and for others: a ResNet-18 must keep up with its stream"""
SMALL_NETWORK = 1_000_000
"""weights"""
LARGE = 30.0
"""a size of inputs that networks are not made for"""


@dataclass(kw_only=True)
class BatchOutcome:
    """What was done with one batch."""

    predicted: Tensor
    """int64 (samples,)"""
    new_classes: tuple[int, ...] = ()
    verdicts: list[Verdict] = field(default_factory=list)
    adapted: list[int] = field(default_factory=list)
    extra: list[Samples] = field(default_factory=list)
    """samples that repairs want trained on"""
    quarantined: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.int64))
    """int64: positions of samples that lie far outside what has been seen, and were left alone"""
    given: list[Samples] = field(default_factory=list)
    """samples with labels that were asked for, of which no repair had use"""
    losses: list[float] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    events: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def tell(self, kind: str, **details: Any) -> None:
        """Something happened; what a person should be told of is also noted."""
        self.events.append((kind, details))
        if "text" in details:
            self.notes.append(details["text"])


class LiveEngine:
    """Looks after one learner, batch by batch."""

    def __init__(
        self,
        parts: LiveParts,
        config: RunConfig,
        settings: LiveSettings,
        *,
        outputs: int,
        own_outputs: int,
        nothing: Samples,
        requester: LabelRequester | None,
        last_good: Callable[[], nn.Module | None],
    ) -> None:
        """Of the network's `outputs`, the first `own_outputs` were trained before.

        `last_good`: a copy of the network as the batch before left it; None: there was none.
        """
        self.parts = parts
        self.parts.learner.between = yield_to_predictions
        self.outputs = outputs
        self.classes: set[int] = set()
        self.waiting: dict[int, Verdict] = {}
        self.untestable: set[int] = set()
        """classes that the last check could say nothing about, although samples enough had come"""
        self.checks = 0
        trusts = config.min_harm is None
        self.window = Window(nothing, settings, trust_guesses=trusts, seen=parts.counts)
        self._tells_harm = config.min_harm is not None
        self._own_outputs = own_outputs
        self._answers = torch.zeros(0, dtype=torch.bool)
        self._answers_for = (0, 0)
        self._requester = requester
        self._told_of_unwatched = False
        self._told_of_scale = parts.scales
        self._catch_up_steps = settings.catch_up_steps
        self._behind = 0
        """steps by which the network is behind a realigned memory"""
        self._check_samples = settings.check_rows
        self._reference_size = settings.reference_size
        self._seed = config.seed
        self._step_samples = settings.batch_size
        self._extra_samples = settled(config.batch_size)
        weights = sum(each.numel() for each in parts.learner.network.parameters())
        usual = MOST_REPLAY_STEPS if weights <= SMALL_NETWORK else FEW_REPLAY_STEPS
        given_steps = settings.replay_steps
        self._replay_steps = usual if given_steps is None else given_steps
        self._replay_size = settled(config.minibatch_size)
        self._last_good = last_good

    @property
    def answers(self) -> Tensor:
        """bool (outputs,): the classes that may be predicted, trained before or seen since."""
        if self._answers_for != (self.outputs, len(self.classes)):  # neither ever shrinks
            self._answers_for = (self.outputs, len(self.classes))
            self._answers = torch.zeros(self.outputs, dtype=torch.bool)
            self._answers[: self._own_outputs] = True
            self._answers[list(self.classes)] = True
        return self._answers

    def predict(self, images: Tensor) -> Tensor:
        """Classes, (samples,), by the averaged weights; -1: nothing has been learned yet."""
        if not len(images) or not bool(self.answers.any()):
            return torch.full((len(images),), UNKNOWN)
        learner, averaged = self.parts.learner, self._last_good()
        if averaged is None or not learner.steps:
            logits = learner.logits(images)
        else:
            logits = learner.logits_of(averaged, images)
        # A head that has grown in this very batch is not yet in the average.
        may = self.answers[: logits.shape[1]]
        return logits.masked_fill(~may, -torch.inf).argmax(dim=1)

    def observe(self, samples: Samples, answers: list[Answer], *, next_row: int) -> BatchOutcome:
        """Everything that is to be done about a batch and about labels that came since."""
        far = self.parts.seen.far(samples.images)
        if is_first := not self.parts.seen.count:  # the first samples are scaled by themselves
            self.parts.take_in(samples.images[~far])
        done = BatchOutcome(predicted=self.predict(samples.images))
        yield_to_predictions()
        outlying = self._outlying(samples, far, done.predicted)
        if not is_first:
            self._take_in(samples.images, far)
        self._report_scale(done)
        predicted = done.predicted
        if bool(outlying.any()):
            done.quarantined = outlying.nonzero().squeeze(1)
            samples, predicted = samples[~outlying], predicted[~outlying]
        has_label = samples.labels >= 0
        mixed = not bool(has_label.all())  # if not, there is nothing to be told apart, nor copied
        learn, watch = self.window.split(samples[has_label] if mixed else samples)
        self.window.watch(watch)
        if mixed:
            self._watch_unlabelled(samples[~has_label], predicted[~has_label], done)
        late = self._take_up(answers, done)
        waited = set(self.waiting)

        yield_to_predictions()
        self._check(done, next_row)
        self.parts.ledger.book_labels("stream", len(learn))
        self._teach([*late, *done.given, learn], done)
        self._mend_waiting(done, next_row)
        self._teach([], done)
        self._catch_up(done)
        self._guard(self.parts.learner.refuse_burst_weights, done)
        self._settle(done)
        # Only now: what was found without labels may have been realigned with those of the batch.
        for label in sorted(self.waiting.keys() - waited):
            text = f"class {label} has drifted, no labels to realign with"
            done.tell("waiting", label=label, text=text)
        yield_to_predictions()
        return done

    def _outlying(self, samples: Samples, far: Tensor, predicted: Tensor) -> Tensor:
        """bool (samples,): single outliers. What a class agrees on is drift, and goes on."""
        classes = torch.where(samples.labels >= 0, samples.labels, predicted)
        return far & ~self.parts.seen.agrees(classes, far)

    def _take_in(self, images: Tensor, far: Tensor) -> None:
        if self.parts.seen.has_moved:
            self.parts.seen.begin_anew()
            self.parts.take_in(images[far])
        else:
            self.parts.take_in(images[~far])

    def _report_scale(self, done: BatchOutcome) -> None:
        """A network learns little from large numbers: say once that they come as they are."""
        if self._told_of_scale or self.parts.seen.count < ENOUGH:
            return
        self._told_of_scale = True
        mean, std = self.parts.seen.statistics
        if (size := float((mean.abs() + std).max())) > LARGE:
            done.notes.append(
                f"inputs are not scaled, and values around {size:.3g} come in: scale them, or set "
                "normalise=True"
            )

    def _guard(self, step: Callable[[], object], done: BatchOutcome) -> bool:
        """Whether a step went well; if not, the network is again as the batch before left it."""
        try:
            step()
        except Diverged as error:
            learner, good = self.parts.learner, self._last_good()
            if good is None:
                learner.restart()
            else:
                learner.go_back(good)
            back = "fresh weights" if good is None else "its last good snapshot"
            done.tell("restored", text=f"the network went back to {back}: {error}")
            return False
        return True

    def fit_reference(self, samples: Samples) -> tuple[int, ...]:
        """From now on the classes of these drawn are compared with them; the classes."""
        samples = samples[~self.parts.seen.far(samples.images)]
        self.parts.take_in(samples.images)
        classes = tuple(sorted(set(samples.labels.tolist())))
        drawn = {label: self._sampled(samples.of_class(label)) for label in classes}
        learned = [self.parts.learner.memory.samples_of(label) for label in classes]
        for handler, track in self._ways():
            for label in classes:
                track.adopt(label, drawn[label])
            handler.renew_reference(_Collected(drawn), classes, Samples.concat(learned))
        return classes

    def _sampled(self, samples: Samples) -> Samples:
        """At most as many as a reference has, any of them."""
        label = int(samples.labels[0])
        draw = rng.fork(self._seed, "history", label)
        chosen = torch.randperm(len(samples), generator=draw)[: self._reference_size].sort().values
        # Numbers that no sample of the stream has, nor one of another class.
        ids = -2 - label * 2**32 - torch.arange(len(chosen))
        return replace(samples[chosen], ids=ids)

    def _watch_unlabelled(self, samples: Samples, guesses: Tensor, done: BatchOutcome) -> None:
        if not len(samples):
            return
        self.window.wait(samples)
        if self.parts.guessed is not None:
            told = guesses != UNKNOWN
            self.window.watch_guessed(samples[told], guesses[told])
        elif not self._told_of_unwatched:
            self._told_of_unwatched = True
            done.notes.append("this detector goes by labels: samples without are not watched")

    def _ways(self) -> list[tuple[DriftHandler, Track]]:
        """The ways in which samples are watched."""
        ways = [(self.parts.given, self.window.given)]
        if self.parts.guessed is not None:
            ways.append((self.parts.guessed, self.window.guessed))
        return ways

    def _take_up(self, answers: list[Answer], done: BatchOutcome) -> list[Samples]:
        """Samples to learn from whose labels came late."""
        taken = take_up(answers, self.window, self.parts.ledger)
        asked, unasked, gone, outdated = (
            sum(getattr(late, name) for late in taken)
            for name in ("asked", "unasked", "gone", "outdated")
        )
        if taken:
            done.tell("answered", given=asked, late=asked + unasked, gone=gone, outdated=outdated)
        if gone:
            done.notes.append(f"{gone} labels came for samples that are no longer kept")
        if outdated:
            done.notes.append(
                f"{outdated} labels came for samples that show how classes used to look"
            )
        return [late.learn for late in taken]

    # Watching and mending

    def _check(self, done: BatchOutcome, next_row: int) -> None:
        """Check what is due, and repair what has drifted."""
        for handler, track in self._ways():
            if not (due := track.due()):
                continue
            self.checks += 1
            look = _Look(number=self.checks + 1, known_classes=due, track=track)
            labels = self._labels(
                done, look, asking=True, now=next_row, onset=self._onset_by(handler, track)
            )
            context = self._bench(handler, look, labels, done)
            if track is self.window.given or not self.window.given.follows:
                # Samples with labels say what it brings: where they come, it waits for them.
                done.notes += handler.follow_up(context)
            verdicts, result = handler.check_and_adapt(look, context)
            if track is self.window.guessed and not self._tells_harm:
                # What a reference of guesses says about accuracy is the learner's own opinion.
                verdicts = tuple(
                    replace(each, harm=None, harm_error=None, harm_unlabelled=None)
                    for each in verdicts
                )
            quiet = [each.label for each in verdicts if each.drifted is False]
            still = [label for label in quiet if label not in self.waiting]
            self.window.unchanged_until(still, next_row)
            done.verdicts += verdicts
            drifted = {each.label: each for each in verdicts if each.needs_adaptation}
            done.tell(
                "checked",
                classes=list(due),
                number=self.checks,
                p_values={str(each.label): each.p_value for each in verdicts},
            )
            if drifted:
                done.tell(
                    "drifted",
                    classes=sorted(drifted),
                    verdicts=[_effect(drifted[label]) for label in sorted(drifted)],
                )
            self._answer(result, drifted, labels, done, next_row)
            track.end_check(due)
        self._report_untestable(done)

    def _report_untestable(self, done: BatchOutcome) -> None:
        """Silence about a class must not be taken for its being as it was.

        A class that one of several checks had something to say about was testable.
        """
        enough = self._check_samples // 2
        tested = {each.label for each in done.verdicts if each.drifted is not None}
        dumb = {
            each.label: each.reason
            for each in done.verdicts
            if each.label not in tested and each.num_current >= enough
        }
        new = sorted(dumb.keys() - self.untestable)
        self.untestable -= {each.label for each in done.verdicts}
        self.untestable |= dumb.keys()
        if new:
            classes = ", ".join(map(str, new))
            text = f"whether classes {classes} have drifted cannot be tested: {dumb[new[0]]}"
            done.tell("untestable", classes=new, text=text)

    def _onset_by(self, handler: DriftHandler, track: Track) -> Callable[[int], int]:
        """The sample with which a class has begun to drift, as a check of it knows."""

        def onset(label: int) -> int:
            since = self.window.since(label)
            if label in self.waiting:  # it has drifted before the samples that were checked now
                return since
            if (told := monitor_of(handler).onset(label)) is not None:
                return told
            # Samples from before those that were checked show how the class looked earlier.
            return max(since, since if (sample := track.began(label)) is None else sample)

        return onset

    def _mend_waiting(self, done: BatchOutcome, next_row: int) -> None:
        """Realign waiting classes for which enough labels have come meanwhile."""
        memory = self.parts.learner.memory.counts() if self.waiting else {}
        ready = {
            label: verdict
            for label, verdict in self.waiting.items()
            if len(self.window.fresh(label)) >= min(FEWEST_FRESH, memory.get(label, 1))
        }
        if not ready:
            return
        handler, track = self.parts.given, self.window.given
        look = _Look(number=self.checks + 1, known_classes=tuple(ready), track=track)
        labels = self._labels(done, look, asking=False, now=next_row)
        result = handler.adapt(list(ready.values()), self._bench(handler, look, labels, done))
        self._answer(result, ready, labels, done, next_row)

    def _answer(
        self,
        result: AdaptationResult,
        drifted: dict[int, Verdict],
        labels: LiveLabels,
        done: BatchOutcome,
        next_row: int,
    ) -> None:
        """What follows from a repair."""
        for label in result.renewed:
            self.window.renew(label, next_row)
        for label, verdict in drifted.items():
            if label not in labels.unmet:
                self.waiting.pop(label, None)
            elif label not in self.waiting:
                self.waiting[label] = verdict
        done.adapted += result.renewed
        done.notes += result.notes
        if result.renewed:
            self._behind = self._catch_up_steps
            done.tell("realigned", classes=list(result.renewed), notes=list(result.notes))
            # For methods that know of tasks, a class that looks new begins one.
            self.parts.learner.begin_task((), from_scratch=result.from_scratch)
        if result.extra is not None:
            self.window.forget(result.extra.ids)
            done.extra.append(self._not_in_memory(result.extra))
        done.given += labels.to_learn()

    def _not_in_memory(self, samples: Samples) -> Samples:
        """Samples that memory has were learned, and are replayed: none is to be there twice."""
        memory = self.parts.learner.memory
        held = [memory.samples_of(label).ids for label in memory.counts()]
        return samples[~torch.isin(samples.ids, torch.cat(held))] if held else samples

    def _labels(
        self,
        done: BatchOutcome,
        look: _Look,
        *,
        asking: bool,
        now: int,
        onset: Callable[[int], int | None] = lambda _: None,
    ) -> LiveLabels:
        return LiveLabels(
            self.window,
            self.parts.ledger,
            requester=self._requester if asking else None,
            predict=self.predict,
            tell=done.tell,
            onset=onset,
            now=look.began(default=now),
        )

    def _bench(
        self, handler: DriftHandler, look: _Look, labels: LiveLabels, done: BatchOutcome
    ) -> AdaptationContext:
        learner, ledger = self.parts.learner, self.parts.ledger

        def rehearse(batch: Samples | None, *, rate: float = 1.0) -> None:
            ledger.add_step()
            if batch is not None:
                self.window.forget(batch.ids)
            self._guard(lambda: learner.rehearse(batch, rate=rate), done)

        return AdaptationContext(
            memory=learner.memory,
            labels=labels,
            annotate=learner.annotate,
            encode=learner.encode,
            rehearse=rehearse,
            steps=lambda: ledger.steps,
            monitored=lambda: monitor_of(handler).as_seen(look),
            compare=lambda kept, now: estimate_shares([(kept, now)])[0],
        )

    # Learning

    def _teach(self, batches: Sequence[Samples], done: BatchOutcome) -> None:
        """Steps on what repairs want trained on, then one or more on the labelled samples."""
        samples = [each for each in batches if len(each)]
        for each in (*done.extra, *samples):
            self._meet(set(each.labels.tolist()), done)
        with self.parts.ledger.phase("train"):
            while done.extra:
                self._steps(done.extra.pop(0), self._extra_samples, done)
            if samples:
                batch = Samples.concat(samples)
                self.window.learned.add(batch)
                self._steps(batch, self._step_samples or len(batch), done)

    def _steps(self, samples: Samples, size: int, done: BatchOutcome) -> None:
        """Steps on so many samples at a time, each followed by replay steps in proportion."""
        for start in range(0, len(samples), size):
            batch = samples[start : start + size]
            if not self._guard(partial(self._step, batch, done), done):
                return
            self._replay(-(-self._replay_steps * len(batch) // size), done)

    def _step(self, batch: Samples, done: BatchOutcome) -> None:
        done.losses.append(self.parts.given.train_step(batch).loss)

    def _replay(self, steps: int, done: BatchOutcome) -> None:
        """Steps on the buffer and on what was learned lately, of which more is kept."""
        for _ in range(steps if len(self.parts.learner.memory) > 1 else 0):
            draw = rng.fork(self._seed, "recent", self.parts.learner.steps)
            recent = self.window.recent(self._replay_size, draw)
            self._guard(partial(self._rehearse, done, recent), done)

    def _rehearse(self, done: BatchOutcome, batch: Samples | None = None) -> None:
        some = batch if batch is not None and len(batch) > 1 else None
        done.losses.append(self.parts.learner.rehearse(some).loss)
        self.parts.ledger.add_step()

    def _catch_up(self, done: BatchOutcome) -> None:
        """The network follows a realigned memory by replay, also while no labels come."""
        if self._behind and not done.losses:
            with self.parts.ledger.phase("train"):
                self._replay(1, done)
        self._behind = max(0, self._behind - len(done.losses))

    def rehearse(self, steps: int) -> BatchOutcome:
        """So many steps on memory alone, which must not be empty."""
        done = BatchOutcome(predicted=torch.empty(0, dtype=torch.int64))
        with self.parts.ledger.phase("train"):
            for _ in range(steps):
                self._guard(lambda: self._rehearse(done), done)
        self._guard(self.parts.learner.refuse_burst_weights, done)
        return done

    def _meet(self, labels: set[int], done: BatchOutcome) -> None:
        """Make room for labels that were never seen."""
        if not (new := labels - self.classes):
            return
        done.new_classes = tuple(sorted({*done.new_classes, *new}))
        done.tell("classes", classes=sorted(new))
        self.classes |= new
        if max(new) >= self.outputs:
            self.outputs = max(new) + 1
            self.parts.learner.grow(self.outputs)
            done.tell("grown", outputs=self.outputs)

    def _settle(self, done: BatchOutcome) -> None:
        """Classes of which enough samples have been collected are watched from here on."""
        for handler, track in self._ways():
            if not (complete := track.complete()):
                continue
            samples = {label: track.renew_reference(label) for label in complete}
            look = _Collected(samples)
            memory = self.parts.learner.memory
            handler.renew_reference(
                look, complete, Samples.concat([memory.samples_of(c) for c in complete])
            )
            if track is self.window.given:
                done.tell("watched", classes=complete)

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes."""
        return {
            "window": self.window.state_dict(),
            "outputs": self.outputs,
            "classes": sorted(self.classes),
            "checks": self.checks,
            "told_of_unwatched": self._told_of_unwatched,
            "told_of_scale": self._told_of_scale,
            "behind": self._behind,
            "untestable": sorted(self.untestable),
            "waiting": [asdict(verdict) for verdict in self.waiting.values()],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up where `state_dict` left off."""
        self.window.load_state_dict(state["window"])
        untestable = state.get("untestable", ())
        counts = [state["outputs"], state["checks"], state.get("behind", 0)]
        counts += [*state["classes"], *untestable]
        if not all(type(count) is int and 0 <= count < 2**62 for count in counts):
            raise ValueError("expected whole numbers of outputs, checks and classes")
        self.outputs = state["outputs"]
        self.classes = set(state["classes"])
        self._answers_for = (0, 0)
        self.checks = state["checks"]
        self._told_of_unwatched = state["told_of_unwatched"]
        self._told_of_scale = bool(state.get("told_of_scale", True))  # not always was there
        self._behind = state.get("behind", 0)  # saved before there was catching up
        self.untestable = set(untestable)
        verdicts = [verdict_from(verdict) for verdict in state["waiting"]]
        self.waiting = {verdict.label: verdict for verdict in verdicts}


def _effect(verdict: Verdict) -> dict[str, Any]:
    """How sure it is that a class has drifted, and how much of it, as JSON can say it."""
    return {
        "class": verdict.label,
        "p_value": verdict.p_value,
        "threshold": verdict.threshold,
        "score": verdict.score,
        "share": verdict.share,
        "share_error": verdict.share_error,
        "harm": verdict.harm,
        "num_reference": verdict.num_reference,
        "num_current": verdict.num_current,
    }


@dataclass(frozen=True, kw_only=True)
class _Look:
    """What a check looks at."""

    number: int
    known_classes: tuple[int, ...]
    track: Track

    def monitored(self) -> Samples:
        return self.track.current(self.known_classes)

    def began(self, *, default: int) -> int:
        """The sample from which on all of the classes are looked at."""
        samples = (self.track.began(label) for label in self.known_classes)
        return max((sample for sample in samples if sample is not None), default=default)

    def reference(self, label: int) -> Samples:
        raise AssertionError(f"a check renews nothing, nor class {label}")


class _Collected:
    """What has been collected of classes."""

    number = 1
    known_classes: tuple[int, ...] = ()

    def __init__(self, samples: dict[int, Samples]) -> None:
        self._samples = samples

    def monitored(self) -> Samples:
        return Samples.concat(list(self._samples.values()))

    def reference(self, label: int) -> Samples:
        return self._samples[label]
