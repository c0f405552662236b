"""torch.profiler: events of ops, in the forward pass and in that of gradients, beside PyTorch."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

import tilewright as tw
from tilewright.runtime.baseline import timed


def training(m: Any, **options: Any) -> tuple[Any, Any]:
    m.manual_seed(0)
    model = m.nn.Sequential(m.nn.Linear(6, 4), m.nn.ReLU(), m.nn.Linear(4, 2))
    optimizer = m.optim.SGD(model.parameters(), lr=0.1)
    x = m.ones(3, 6)
    activities = [m.profiler.ProfilerActivity.CPU]
    with m.profiler.profile(activities=activities, **options) as prof:
        with m.profiler.record_function("forward"):
            y = model(x)
        y.exp().sum().backward()
        optimizer.step()
    return prof, [p.detach().tolist() for p in model.parameters()]


def test_ops_have_pytorchs_names_calls_shapes_and_operations(torch: Any) -> None:
    options = {"record_shapes": True, "with_flops": True}
    (mine, _), (theirs, _) = training(tw, **options), training(torch, **options)
    counts = [{e.key: e.count for e in p.key_averages()} for p in (mine, theirs)]
    for name in ("forward", "aten::addmm", "aten::exp", "Optimizer.step#SGD.step"):
        assert counts[0][name] == counts[1][name], name
    assert counts[0]["aten::mm"] == 3  # without the gradient of the data
    by_shape = mine.key_averages(group_by_input_shape=True)
    shapes = {str(e.input_shapes) for e in by_shape if e.key == "aten::addmm"}
    assert shapes == {"[[3, 6], [4, 6], [4]]", "[[3, 4], [2, 4], [2]]"}
    flops = [sum(e.flops for e in p.events() if e.name == "aten::addmm") for p in (mine, theirs)]
    assert flops[0] == flops[1] > 0
    table = mine.key_averages(group_by_input_shape=True).table(sort_by="self_cpu_time_total")
    assert "Input Shapes" in table and "Total FLOPs" in table and "aten::relu" in table


def test_a_profile_changes_no_value() -> None:
    _, profiled = training(tw)
    tw.manual_seed(0)
    model = tw.nn.Sequential(tw.nn.Linear(6, 4), tw.nn.ReLU(), tw.nn.Linear(4, 2))
    optimizer = tw.optim.SGD(model.parameters(), lr=0.1)
    model(tw.ones(3, 6)).exp().sum().backward()
    optimizer.step()
    assert timed.tell is None
    for got, p in zip(profiled, model.parameters(), strict=True):
        tw.testing.assert_close(tw.tensor(got), p.detach())


def test_ops_belong_to_the_block_that_they_ran_in() -> None:
    prof, _ = training(tw, profile_memory=True, with_stack=True)
    (block,) = (e for e in prof.events() if e.name == "forward")
    names = [e.name for e in block.cpu_children]
    assert names.count("aten::addmm") == 2 and "aten::relu" in names and "aten::exp" not in names
    inside = sum(e.cpu_time_total for e in block.cpu_children)
    assert block.cpu_time_total == pytest.approx(inside + block.self_cpu_time_total)
    first = next(e for e in block.cpu_children if e.name == "aten::addmm")
    assert first.cpu_memory_usage == 3 * 4 * 4 and block.cpu_memory_usage >= 72
    assert first.stack[0].partition("(")[0].endswith("test_profiler.py")
    assert "Self CPU Mem" in prof.key_averages().table()
    assert "Source Location" in prof.key_averages(group_by_stack_n=1).table()


def test_only_the_steps_of_the_schedule_are_collected(torch: Any, tmp_path: Path) -> None:
    def run(m: Any) -> Any:
        seen = []

        def done(prof: Any) -> None:
            events = prof.key_averages()
            steps = sorted(e.key for e in events if e.key.startswith("ProfilerStep"))
            seen.append((steps, next(e.count for e in events if e.key == "aten::exp")))

        schedule = m.profiler.schedule(wait=1, warmup=1, active=2, repeat=2)
        with m.profiler.profile(
            activities=[m.profiler.ProfilerActivity.CPU], schedule=schedule, on_trace_ready=done
        ) as prof:
            for i in range(9):
                (m.ones(3) * i).exp().sum().item()
                prof.step()
        return seen

    with pytest.warns(UserWarning, match="clears events"):
        wanted = run(torch)
    assert run(tw) == wanted


def test_traces_are_files_that_viewers_read(tmp_path: Path) -> None:
    prof, _ = training(tw, record_shapes=True, with_stack=True)
    prof.add_metadata_json("sizes", "[1, 2]")
    for name, opened in (("trace.json", open), ("trace.json.gz", gzip.open)):
        prof.export_chrome_trace(str(tmp_path / name))
        with opened(tmp_path / name, "rt") as file:
            trace = json.load(file)
        assert trace["sizes"] == [1, 2]
        by_name = {e["name"]: e for e in trace["traceEvents"]}
        op, block = by_name["aten::addmm"], by_name["forward"]
        assert (op["ph"], op["cat"], block["cat"]) == ("X", "cpu_op", "user_annotation")
        assert op["args"]["Input Dims"] and op["dur"] >= 0
        ops, blocks = (
            [e for e in trace["traceEvents"] if e["name"] == name]
            for name in ("aten::addmm", "forward")
        )
        for each in ops:  # layers run in the block that calls them
            assert any(
                b["ts"] <= each["ts"] and each["ts"] + each["dur"] <= b["ts"] + b["dur"] + 1e-3
                for b in blocks
            )
    prof.export_stacks(str(tmp_path / "stacks.txt"), "self_cpu_time_total")
    assert "test_profiler.py" in (tmp_path / "stacks.txt").read_text()
    handler = tw.profiler.tensorboard_trace_handler(str(tmp_path / "log"), use_gzip=True)
    handler(prof)
    assert next((tmp_path / "log").iterdir()).name.endswith(".pt.trace.json.gz")


def test_an_op_that_fails_raises_its_error_in_a_profile() -> None:
    with tw.profiler.profile(), pytest.raises(IndexError):
        tw.ones(3)[tw.tensor([5])].tolist()
    assert timed.tell is None


@pytest.mark.parametrize("requires_grad", [False, True])
def test_a_call_whose_result_nobody_keeps_is_an_event(torch: Any, requires_grad: bool) -> None:
    def names(m: Any) -> list[set[str]]:
        x = m.ones(3, 4, requires_grad=requires_grad)
        layer, found = m.nn.Linear(4, 2), []
        for call in (lambda: x + 1, lambda: x.sin().exp(), lambda: layer(x), lambda: m.cat([x, x])):
            with m.profiler.profile(activities=[m.profiler.ProfilerActivity.CPU]) as prof:
                call()
            found.append({e.key for e in prof.key_averages()})
        return found

    shown = {"aten::add", "aten::sin", "aten::exp", "aten::addmm", "aten::cat"}
    assert [each & shown for each in names(tw)] == [each & shown for each in names(torch)]


@pytest.mark.filterwarnings("ignore:.*Profiler")  # what PyTorch says of it
@pytest.mark.parametrize("steps", range(9))
@pytest.mark.parametrize("options", [{}, {"warmup": 0}, {"wait": 0, "repeat": 1}])
def test_a_profile_that_ends_amid_a_cycle(torch: Any, options: Any, steps: int) -> None:
    found = []
    for m in (tw, torch):
        ended: list[int] = []
        schedule = m.profiler.schedule(**{"wait": 1, "warmup": 1, "active": 2, **options})
        with m.profiler.profile(
            activities=[m.profiler.ProfilerActivity.CPU],
            schedule=schedule,
            on_trace_ready=lambda prof, ended=ended: ended.append(prof.step_num),
        ) as prof:
            for _ in range(steps):
                m.ones(2).sin()
                prof.step()
        found.append(ended)
    assert found[0] == found[1]
