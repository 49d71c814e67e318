"""Tasks that runs share: run once, and bit-equal to separate runs, whoever performs them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from run_tools import events_of, lasting, lasting_checkpoint, result_of, snapshot
from sweep_tools import Notes, job_of, tiny_plan, undisturbed

from driftwise.config.build import assemble
from driftwise.config.registry import CATALOGUE
from driftwise.config.schema import changed
from driftwise.learner import Learner
from driftwise.runs import run as runs
from driftwise.runs.checkpoint import flatten
from driftwise.runs.saving import OFTEN
from driftwise.runs.store import RunFolder, is_finished, shared_tasks
from driftwise.sweeps import perform as sweeps
from driftwise.sweeps.executors import Engine, InProcess, Pool
from driftwise.sweeps.grid import Grid
from driftwise.sweeps.job import Job, Outcome, perform
from driftwise.sweeps.perform import Summary, carry_out
from driftwise.sweeps.plan import RUNS, SHARED, Plan, make_plan
from driftwise.sweeps.shared import tree_of

BASE: dict[str, Any] = {"tasks": [[0, 1], [2], [3], [4], [5]], "buffer_size": 40, "method": "der++"}
AXES: dict[str, Any] = {"num_drifts": [0, 1, 2], "adaptation": ["vanilla", "fr", "amr", "amr-plus"]}
NO_DRIFT: dict[str, Any] = {"num_drifts": [0], "adaptation": ["fr", "amr", "amr-plus"]}


@pytest.fixture(autouse=True)
def _hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeps, "POLL", 0.01)


def plan_of(**changes: Any) -> Plan:
    """One seed of a cell of a table: a run without drift, four adaptations at 1 and 2 drifts."""
    base = {"epochs": 1, "checked": "just-drifted", **BASE, **changes}
    return make_plan("cell", Grid(axes=AXES, base=base, without=[NO_DRIFT]))


@pytest.fixture(scope="module")
def separate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All runs of the plan, each by itself."""
    return undisturbed(plan_of(), tmp_path_factory.mktemp("separate"))


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One entry for each train step in this process from now on."""
    made: list[int] = []
    observe = Learner.observe

    def counting(self: Learner, batch: Any) -> Any:
        made.append(1)
        return observe(self, batch)

    monkeypatch.setattr(Learner, "observe", counting)
    return made


class Recording(Engine):
    """Performs jobs in this process and keeps them."""

    slots = 2

    def __init__(self) -> None:
        self.jobs: list[Job] = []
        self._inner = InProcess()

    def submit(self, job: Job) -> None:
        self.jobs.append(job)
        self._inner.submit(job)

    def wait(self, seconds: float) -> Outcome | None:
        return self._inner.wait(seconds)


def test_a_cell_of_a_table_shares_what_comes_before_each_first_drift() -> None:
    plan = plan_of()
    tree = tree_of(plan.runs)
    assert [(each.until, len(each.runs)) for each in tree.shared.values()] == [(1, 9), (2, 5)]
    first, second = tree.shared.values()
    assert second.parent == first.id
    assert set(tree.parent_of) == {run.id for run in plan.runs}
    # 1 + 1 + 3 x 4 (two drifts) + 3 x 3 (one drift) + 3 (none, which is trained for all vanillas)
    assert tree.num_tasks == (26, 45)


def test_seeds_are_completed_one_after_the_other_and_groups_together() -> None:
    plan = tiny_plan(
        axes={"adaptation": ["vanilla", "amr"], "method": ["er", "der++"], "seed": [3, 0]}
    )
    order = [(run.place["seed"], run.place["method"]) for run in tree_of(plan.runs).runs]
    assert order == [(seed, method) for seed in (3, 0) for method in ("er", "der++") for _ in "12"]


@pytest.mark.parametrize(
    "changes",
    [
        {"events": [{"task": 2, "transforms": [["rotation", 2]]}]},
        {"adaptation": "own_parts:Few"},
    ],
)
def test_scripted_drift_and_adaptations_that_act_at_any_time_share_nothing(
    changes: dict[str, Any],
) -> None:
    axes = {"severity": [1, 2]}
    plan = tiny_plan(axes=axes)
    configs = [run.config for run in plan.runs]
    changed_runs = [
        replace(run, config=changed(config, **changes))
        for run, config in zip(plan.runs, configs, strict=True)
    ]
    assert tree_of(plan.runs).shared
    assert not tree_of(changed_runs).shared


@pytest.mark.parametrize("make", [Recording, lambda: Pool(2)], ids=["in-process", "pool"])
def test_branches_are_bit_equal_to_separate_runs(
    make: Callable[[], Engine], separate: Path, tmp_path: Path
) -> None:
    plan, notes = plan_of(), Notes()
    with make() as engine:
        assert carry_out(plan.runs, tmp_path, engine, notes) == Summary(total=9, done=9)
    for run in plan.runs:
        ours, theirs = tmp_path / RUNS / run.id, separate / RUNS / run.id
        assert lasting(ours) == lasting(theirs)
        assert events_of(ours) == events_of(theirs)
        assert lasting_checkpoint(ours) == lasting_checkpoint(theirs)
    assert sorted(notes.starts) == sorted(run.id for run in plan.runs)
    assert list((tmp_path / SHARED).iterdir()) == []  # nobody needs them any more
    if isinstance(engine, Recording):
        assert [job.until for job in engine.jobs if job.until] == [1, 2]
        assert len(engine.jobs) == 11
        follows = [job.id for job in engine.jobs if job.follows]
        vanilla = [r.id for r in plan.runs if r.place["adaptation"] == "vanilla"]
        assert follows == vanilla[1:]


def test_runs_that_do_not_adapt_are_not_trained_again(
    separate: Path, tmp_path: Path, steps: list[int]
) -> None:
    plan = plan_of()
    vanilla = [run for run in plan.runs if run.place["adaptation"] == "vanilla"]
    carry_out(vanilla, tmp_path, InProcess(), Notes())
    assert {result_of(tmp_path / RUNS / run.id)["gradient_steps"] for run in vanilla} == {
        len(steps)
    }
    for run in vanilla:
        assert lasting(tmp_path / RUNS / run.id) == lasting(separate / RUNS / run.id)
    assert list((tmp_path / SHARED).iterdir()) == []


def test_a_leader_that_was_done_before_is_replaced_by_one_of_those_that_wait(
    separate: Path, tmp_path: Path, steps: list[int]
) -> None:
    plan = plan_of()
    vanilla = [run for run in plan.runs if run.place["adaptation"] == "vanilla"]
    (leading,) = {*tree_of(plan.runs).leader_of.values()}
    (leader,) = [run for run in vanilla if run.id == leading]
    assert perform(job_of(leader, tmp_path)).state == "done"
    steps.clear()
    assert carry_out(vanilla, tmp_path, InProcess(), Notes()).done == len(vanilla)
    assert {result_of(tmp_path / RUNS / run.id)["gradient_steps"] for run in vanilla} == {
        len(steps)
    }
    for run in vanilla:
        assert lasting(tmp_path / RUNS / run.id) == lasting(separate / RUNS / run.id)
    assert list((tmp_path / SHARED).iterdir()) == []


@pytest.mark.parametrize("changes", [{"method": "joint"}, {"recurring_in_training": True}])
def test_where_drift_reaches_training_nobody_follows(changes: dict[str, Any]) -> None:
    plan = plan_of(**changes)
    assert tree_of(plan.runs).leader_of == {}


def test_what_is_left_of_a_trail_is_not_followed(separate: Path, tmp_path: Path) -> None:
    plan = plan_of()
    leader, follower, *_ = [run for run in plan.runs if run.place["adaptation"] == "vanilla"]
    trail = tmp_path / "trail"
    job = Job(**{**job_of(leader, tmp_path).to_json(), "trail": str(trail)})
    assert perform(job).state == "done"
    (trail / "task-4.safetensors").write_bytes(b"damaged")
    job = Job(**{**job_of(follower, tmp_path).to_json(), "follows": str(trail)})
    assert perform(job).state == "done"
    for run in (leader, follower):
        assert lasting(tmp_path / RUNS / run.id) == lasting(separate / RUNS / run.id)


def test_at_the_branch_a_checkpoint_is_that_of_the_run_by_itself(tmp_path: Path) -> None:
    plan = plan_of()
    run = next(
        r for r in plan.runs if r.place["adaptation"] == "amr" and r.place["num_drifts"] == 1
    )
    shared = tree_of(plan.runs).shared[tree_of(plan.runs).parent_of[run.id]]
    trunk = Job(
        id=shared.id, folder=str(tmp_path / "trunk"), config=shared.config.to_json(), until=2
    )
    assert perform(trunk).state == "done"
    assert shared_tasks(tmp_path / "trunk") == 2

    alone, branch = assemble(run.config), assemble(run.config)
    with (
        RunFolder.open(tmp_path / "alone", alone.config.to_json()) as folder,
        runs._running(folder, alone, None, OFTEN, None) as completed,
    ):
        assert [next(completed) for _ in range(3)] == [0, 1, 2]
    with RunFolder.open(tmp_path / "branch", branch.config.to_json()) as folder:
        assert runs.begin_from(folder, branch, tmp_path / "trunk") == 2
    assert lasting_checkpoint(tmp_path / "branch") == lasting_checkpoint(tmp_path / "alone")


@pytest.mark.parametrize("name", CATALOGUE["adaptation"])
def test_no_adaptation_does_anything_before_a_class_is_found_drifted(
    name: str,
) -> None:
    changes: dict[str, Any] = {
        "adaptation": name,
        "num_drifts": 0,
        "detector": "combined",
        "buffer_size": 40,
    }
    (one,) = tiny_plan(axes={"seed": [0]}, **changes).runs
    (vanilla,) = tiny_plan(axes={"seed": [0]}, **changes | {"adaptation": "vanilla"}).runs
    loop, other = assemble(one.config), assemble(vanilla.config)
    fresh = flatten(loop.adaptation_state.state_dict())[1]
    for each in (loop, other):
        for record in each.run(each.stream):
            assert not any(verdict.drifted for verdict in record.verdicts)
    assert flatten(loop.adaptation_state.state_dict())[1] == fresh
    ours, theirs = (flatten(each.learner.state_dict()) for each in (loop, other))
    assert ours[1] == theirs[1]
    assert all(torch.equal(tensor, theirs[0][key]) for key, tensor in ours[0].items())


def test_a_false_alarm_ends_what_is_shared(tmp_path: Path) -> None:
    always: dict[str, Any] = {"detector": "always", "checked": "all-known", "num_drifts": 1}
    plan = tiny_plan(axes={"adaptation": ["vanilla", "fr", "amr"]}, **BASE | always)
    separate = undisturbed(plan, tmp_path / "separate")
    with InProcess() as engine:
        carry_out(plan.runs, tmp_path / "out", engine, Notes())
    for run in plan.runs:
        assert lasting(tmp_path / "out" / RUNS / run.id) == lasting(separate / RUNS / run.id)
    (first, *_) = tree_of(plan.runs).shared.values()
    trunk = Job(id="t", folder=str(tmp_path / "t"), config=first.config.to_json(), until=2)
    assert perform(trunk).state == "done"
    assert shared_tasks(tmp_path / "t") == 1  # in the second task every class is found drifted


def test_killed_shared_tasks_are_resumed_and_no_branch_runs_twice(
    separate: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_of()
    trunks = list(tree_of(plan.runs).shared.values())
    begun: list[int] = []
    original = runs._StopAtDrift.checked

    def dies(self: Any, task: Any, *rest: Any) -> None:
        begun.append(task.number)
        if begun == [1, 2]:
            raise KeyboardInterrupt
        original(self, task, *rest)

    monkeypatch.setattr(runs._StopAtDrift, "checked", dies)
    with pytest.raises(KeyboardInterrupt):
        carry_out(plan.runs, tmp_path, InProcess(), Notes())
    assert shared_tasks(tmp_path / SHARED / trunks[0].id) == 1
    assert shared_tasks(tmp_path / SHARED / trunks[1].id) is None
    # Some runs of another command have finished meanwhile, one has only begun.
    done = plan.runs[0]
    assert perform(job_of(done, tmp_path)).state == "done"
    before = snapshot(tmp_path / RUNS / done.id)
    engine = Recording()
    assert carry_out(plan.runs, tmp_path, engine, Notes()).done == 9
    assert begun == [1, 2, 2]
    assert snapshot(tmp_path / RUNS / done.id) == before
    assert done.id not in [job.id for job in engine.jobs]
    for run in plan.runs:
        assert lasting(tmp_path / RUNS / run.id) == lasting(separate / RUNS / run.id)


def test_a_crash_while_a_run_takes_over_shared_tasks_loses_nothing(
    separate: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_of()
    run = plan.runs[-1]
    (shared, *_) = tree_of(plan.runs).shared.values()
    trunk = Job(id="t", folder=str(tmp_path / "t"), config=shared.config.to_json(), until=1)
    perform(trunk)
    job = Job(**{**job_of(run, tmp_path).to_json(), "begins_from": str(tmp_path / "t")})

    def dies(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "save_checkpoint", dies)
        with pytest.raises(KeyboardInterrupt):
            perform(job)
    assert not is_finished(tmp_path / RUNS / run.id)
    assert perform(job).state == "done"
    assert lasting(tmp_path / RUNS / run.id) == lasting(separate / RUNS / run.id)


def test_damaged_or_missing_shared_tasks_cost_time_alone(separate: Path, tmp_path: Path) -> None:
    run = plan_of().runs[-1]
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "checkpoint.safetensors").write_bytes(b"no checkpoint")
    job = Job(**{**job_of(run, tmp_path).to_json(), "begins_from": str(tmp_path / "t")})
    outcome = perform(job)
    assert outcome.state == "done"
    assert len(outcome.warnings) == 1
    assert "begins at its first task" in outcome.warnings[0]
    assert lasting(tmp_path / RUNS / run.id) == lasting(separate / RUNS / run.id)


def test_where_shared_tasks_fail_each_run_begins_at_its_first_task(tmp_path: Path) -> None:
    class Failing(Recording):
        """Shared tasks always fail."""

        def submit(self, job: Job) -> None:
            self.jobs.append(job)

        def wait(self, seconds: float) -> Outcome | None:
            job = self.jobs[-1]
            if job.until is not None:
                return Outcome(id=job.id, state="failed", error="no")
            return perform(job)

    plan = tiny_plan(axes={"adaptation": ["vanilla", "amr"]}, num_drifts=1)
    engine = Failing()
    engine.slots = 1
    assert carry_out(plan.runs, tmp_path, engine, Notes(), retries=1).done == 2
    assert [job.until for job in engine.jobs] == [1, 1, None, None]
    assert [job.begins_from for job in engine.jobs[2:]] == [None, None]
