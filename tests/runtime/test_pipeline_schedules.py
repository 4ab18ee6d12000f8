"""Stored programs under all of torch's schedules, in a process that holds the whole pipeline."""

import weakref
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist

from pp_precompile.runtime import stage_forward
from pp_precompile.runtime.loader import LoadedStage
from tests.runtime import pipelines

SCHEDULES = {
    # name: (stages, kinds of backward actions)
    "GPipe": (1, "B"),
    "1F1B": (1, "B"),
    "LoopedBFS": (2, "B"),
    "Interleaved1F1B": (2, "B"),
    "InterleavedZeroBubble": (2, "IW"),
    "ZBVZeroBubble": (2, "BIW"),
    "DualPipeV": (2, "BIW"),
}
SPLIT = [name for name, (_, kinds) in SCHEDULES.items() if "W" in kinds]


@pytest.fixture(scope="module", autouse=True)
def one_rank() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def loaded() -> dict[int, list[LoadedStage]]:
    """Stages with every program that a schedule may need, by the length of the pipeline."""
    return {n: pipelines.compiled(pipelines.modules(n), "BIW") for n in (1, 2, 3)}


def _run(
    name: str, loaded: dict[int, list[LoadedStage]], steps: int = 1, length: int | None = None
) -> tuple[Any, ...]:
    modules = pipelines.modules(length or SCHEDULES[name][0])
    schedule, stages, _ = pipelines.pipeline(name, modules, loaded[len(modules)])
    for _ in range(steps):
        losses: list[torch.Tensor] = []
        for stage in stages:
            stage.submod.zero_grad()
        schedule.step(pipelines.tokens(), target=pipelines.tokens(), losses=losses)
    return losses, [dict(stage.submod.named_parameters()) for stage in stages], modules


@pytest.mark.parametrize("name", SCHEDULES)
def test_losses_and_gradients_are_those_of_the_modules(name: str, loaded) -> None:
    _check_run(*_run(name, loaded, steps=2))


def test_stages_of_one_structure_share_a_loaded_program(loaded) -> None:
    first, *middle = loaded[3]
    for role, program in middle[0].programs.items():
        assert middle[1].programs[role] is program
        assert first.programs.get(role) is not program
    _check_run(*_run("LoopedBFS", loaded, steps=2, length=3))


def _check_run(losses: Any, parameters: Any, modules: Any) -> None:
    """Compare a run of two steps' last losses, and the last gradients, with the eager ones."""
    expected, gradients = pipelines.eager(modules)
    assert [loss.item() for loss in losses] == pytest.approx(expected, rel=1e-6)
    for found, wanted in zip(parameters, gradients, strict=True):
        assert found.keys() == wanted.keys()
        for parameter, gradient in wanted.items():
            # Sums of float32 in another order, over 8 microbatches.
            torch.testing.assert_close(found[parameter].grad, gradient, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", SPLIT)
def test_two_programs_give_bitwise_the_gradients_of_one(name: str, loaded) -> None:
    _, split, _ = _run(name, loaded)
    _, whole, _ = _run("Interleaved1F1B", loaded)
    for found, expected in zip(split, whole, strict=True):
        for parameter, value in expected.items():
            assert torch.equal(found[parameter].grad, value.grad), parameter


@pytest.mark.parametrize("name", SCHEDULES)
def test_evaluation_between_steps_leaves_gradients_alone(name: str, loaded) -> None:
    modules = pipelines.modules(SCHEDULES[name][0])
    schedule, stages, _ = pipelines.pipeline(name, modules, loaded[len(modules)])
    schedule.step(pipelines.tokens(), target=pipelines.tokens())
    before = [p.grad.clone() for stage in stages for p in stage.submod.parameters()]
    losses: list[torch.Tensor] = []
    schedule.eval(pipelines.tokens(), target=pipelines.tokens(), losses=losses)
    after = [p.grad for stage in stages for p in stage.submod.parameters()]
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    expected, _ = pipelines.eager(modules)
    assert [loss.item() for loss in losses] == pytest.approx(expected, rel=1e-6)
    schedule.step(pipelines.tokens(), target=pipelines.tokens())
    twice = [p.grad for stage in stages for p in stage.submod.parameters()]
    for once, both in zip(before, twice, strict=True):
        torch.testing.assert_close(both, 2 * once, rtol=1e-6, atol=1e-6)


class _Watch:
    """Keeps weak references to what forwards saved, by stage and microbatch."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, stages: list[Any]) -> None:
        self.saved: dict[tuple[int, int], dict[str, weakref.ref[torch.Tensor]]] = {}
        self.problems: list[str] = []
        self.most: dict[int, int] = defaultdict(int)
        self.ended: set[tuple[int, int]] = set()
        self._monkeypatch = monkeypatch
        for stage in stages:
            self._watch_stage(stage)

    def _watch_stage(self, stage: Any) -> None:
        forward, index = stage._stored_forward, stage.stage_index
        records = forward._stage.record.programs
        # A value that is an input passed through belongs to others too.
        own = {v.name for v in records["forward"].outputs if v.kind == "saved" and not v.alias}
        weight = records.get("backward_weight")
        later = {v.name for v in weight.inputs if v.kind == "saved"} if weight else own
        run_forward, current = forward._run_forward, {}

        def keep_references(*args: Any) -> Any:
            outputs, saved = run_forward(*args)
            current.update({n: weakref.ref(t) for (_, n), t in saved.items() if n in own})
            return outputs, saved

        def after(method: str, allowed: set[str]) -> None:
            original = getattr(stage, method)

            def run(microbatch: int, *args: Any, **kwargs: Any) -> Any:
                result = original(microbatch, *args, **kwargs)
                if method == "forward_one_chunk":
                    self.saved[index, microbatch] = dict(current)
                    current.clear()
                kept = own if method == "forward_one_chunk" else allowed
                if method == "backward_one_chunk" and kwargs.get("full_backward", True):
                    kept = set()
                if not kept:
                    self.ended.add((index, microbatch))
                self._check(method, index, microbatch, kept)
                return result

            self._monkeypatch.setattr(stage, method, run)

        self._monkeypatch.setattr(forward, "_run_forward", keep_references)
        after("forward_one_chunk", own)
        after("backward_one_chunk", later & own)
        after("backward_weight_one_chunk", set())

    def _alive(self, key: tuple[int, int]) -> set[str]:
        return {name for name, reference in self.saved[key].items() if reference() is not None}

    def _check(self, method: str, index: int, microbatch: int, kept: set[str]) -> None:
        alive = self._alive((index, microbatch))
        if alive != kept:
            self.problems.append(f"{method} {index} {microbatch}: {alive} alive, not {kept}")
        open_now = sum(stage == index and bool(self._alive((stage, m))) for stage, m in self.saved)
        self.most[index] = max(self.most[index], open_now)


@pytest.mark.parametrize("name", SCHEDULES)
def test_saved_values_are_freed_by_their_last_action(
    name: str, loaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    modules = pipelines.modules(SCHEDULES[name][0])
    schedule, stages, _ = pipelines.pipeline(name, modules, loaded[len(modules)])
    watch = _Watch(monkeypatch, stages)
    schedule.step(pipelines.tokens(), target=pipelines.tokens(), return_outputs=False)
    assert watch.problems == []
    assert len(watch.ended) == len(stages) * pipelines.MICROBATCHES
    assert all(watch._alive(key) == set() for key in watch.saved)
    # What was saved grows with the microbatches in flight, which is what 1F1B and its kin bound.
    if name == "1F1B":
        assert watch.most == {0: 1}
    if name in ("GPipe", "LoopedBFS"):
        assert set(watch.most.values()) == {pipelines.MICROBATCHES}
    if name == "ZBVZeroBubble":
        assert max(watch.most.values()) < pipelines.MICROBATCHES


def test_the_watch_notices_a_value_that_is_kept(loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    modules = pipelines.modules(2)
    schedule, stages, forwards = pipelines.pipeline("ZBVZeroBubble", modules, loaded[2])
    hoard = []
    run = forwards[1]._run_forward
    monkeypatch.setattr(forwards[1], "_run_forward", lambda *a: hoard.append(run(*a)) or hoard[-1])
    watch = _Watch(monkeypatch, stages)
    monkeypatch.setattr(stage_forward.StageBackward, "_run", _run_on_a_copy(hoard))
    schedule.step(pipelines.tokens(), target=pipelines.tokens(), return_outputs=False)
    assert watch.problems


def _run_on_a_copy(hoard: list[Any]) -> Any:
    original = stage_forward.StageBackward._run

    def run(self: Any, role: Any, values: Any, kept: Any) -> Any:
        hoard.append(dict(values))
        return original(self, role, values, kept)

    return run
