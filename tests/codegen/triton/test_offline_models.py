"""Training steps of real sizes as kernels for an H200, of which only the compiler sees anything."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest
from paths import BENCH

import tilewright as tw
import tilewright.amp
import tilewright.nn as nn
import tilewright.optim
from tilewright.codegen.chip import SM_90
from tilewright.codegen.kernel import Bundle, Dot, Kernel
from tilewright.codegen.program import launched
from tilewright.codegen.schedule import Schedule, Usage, default_schedule, settled
from tilewright.codegen.target import gpu
from tilewright.codegen.triton import emit
from tilewright.inspection.explanation import predict
from tilewright.runtime.offline import Compiled, compile_many, request

sys.path.insert(0, str(BENCH))
import models

pytestmark = pytest.mark.triton
HOPPER = gpu("sm_90")


def step_of(model: Any, *inputs: Any, half: bool = True) -> Callable[[], None]:
    optimizer = tw.optim.AdamW(model.parameters(), lr=1e-3)

    def step() -> None:
        with tw.autocast("cpu", tw.bfloat16, enabled=half):
            loss = model(*inputs)
        loss.float().mean().backward()
        optimizer.step()

    return step


def gpt() -> Callable[[], None]:
    """A layer of GPT-2, with its vocabulary."""
    model = models.gpt(
        tw, layers=1, heads=12, width=768, context=1024, vocab=50304, fused_attention=True
    )
    tokens = tw.zeros(8, 1024, dtype=tw.int64)
    return step_of(model, tokens, tokens)


def encoder(half: bool) -> Callable[[], None]:
    """A layer of BERT, with dropout."""
    model = models.encoder(tw, layers=1, heads=12, width=768, hidden=3072)
    return step_of(model, tw.zeros(16, 512, 768), half=half)


def images() -> Callable[[], None]:
    """Blocks as in the middle of a ResNet, with and without a stride."""

    class Block(nn.Module):
        def __init__(self, inputs: int, outputs: int, stride: int) -> None:
            super().__init__()
            self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
            self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
            self.norm1, self.norm2 = nn.BatchNorm2d(outputs), nn.BatchNorm2d(outputs)
            self.across = nn.Conv2d(inputs, outputs, 1, stride, bias=False)

        def forward(self, x: Any) -> Any:
            y = self.norm2(self.conv2(self.norm1(self.conv1(x)).relu()))
            return (y + self.across(x)).relu()

    model = nn.Sequential(Block(64, 128, 2), Block(128, 128, 1), nn.AdaptiveAvgPool2d(1))
    return step_of(model, tw.zeros(64, 64, 28, 28))


def activations() -> Callable[[], None]:
    """What divides once an element or more, of which each is a branch, with all that is kept."""
    layers = nn.Softplus(), nn.ELU()
    model = nn.Sequential(*(m for act in layers for m in (nn.Linear(1024, 1024), act)))
    return step_of(nn.Sequential(model, nn.LayerNorm(1024)), tw.zeros(16384, 1024))


STEPS = {
    "gpt": gpt,
    "encoder": lambda: encoder(True),
    "encoder in float32": lambda: encoder(False),
    "images": images,
    "activations": activations,
}


def kernels_of(step: Callable[[], None]) -> list[tuple[Kernel, Schedule, Compiled]]:
    """The distinct kernels of a step, compiled by the schedules that they are taken with."""
    made: dict[str, Compiled] = {}
    texts: dict[Any, str] = {}

    def compiled(asked: dict[Any, Schedule]) -> dict[Any, Usage]:
        requests = {k: request(emit(k, s), "sm_90") for k, s in asked.items()}
        texts.update({k: repr(r) for k, r in requests.items()})
        missing = {repr(r): r for r in requests.values() if repr(r) not in made}
        made.update(zip(missing, compile_many(list(missing.values()), processes=2), strict=True))
        used = {k: made[texts[k]] for k in asked}
        return {k: c.usage for k, c in used.items()}

    programs = predict(step).programs("sm_90")
    kernels = [k for _, program in programs for k in launched(program)]
    assert all(isinstance(k, (Kernel, Bundle)) for k in kernels)
    taken = settled({k: default_schedule(k, HOPPER) for k in kernels}, HOPPER, compiled)
    found = {texts[k]: (k, schedule, made[texts[k]]) for k, schedule in taken.items()}
    return list(found.values())


@pytest.mark.slow
@pytest.mark.parametrize("name", STEPS)
def test_nothing_spills(name: str) -> None:
    """All kernels fit; products of halves run on tensor cores, large ones by hardware copies."""
    walked = products = 0
    for kernel, schedule, compiled in kernels_of(STEPS[name]()):
        what = f"{kernel.name} with {schedule}"
        assert compiled.spills == 0, f"{what}: {compiled.spills} bytes of spills"
        assert compiled.shared <= SM_90.shared_each, f"{what}: {compiled.shared} bytes"
        dots = [v for v in getattr(kernel, "values", ()) if isinstance(v, Dot)]
        if dots and dots[0].input_dtype.itemsize == 2:
            products += 1
            rows = schedule.block_m >= SM_90.rows
            assert SM_90.product in compiled.asm["ptx"] or not rows, what
        if schedule.persistent:
            walked += 1
            assert "cp.async.bulk.tensor" in compiled.asm["ptx"], what
    assert products > 3 or "float32" in name
    assert walked > 3 or name != "gpt"


def test_a_prediction_computes_nothing() -> None:
    model = nn.Linear(4, 3)
    before = model.weight.tolist()
    step = step_of(model, tw.ones(2, 4), half=False)
    report = predict(step)
    assert report.runs == 0 and report.ops > 5
    assert "us on one H200" in report.costs("sm_90")
    assert model.weight.tolist() == before

    def looks() -> None:
        model(tw.ones(2, 4)).sum().item()

    with pytest.raises(RuntimeError, match=r"looks at a value.*test_offline_models\.py"):
        predict(looks)
    step = step_of(nn.Linear(4, 3), tw.ones(2, 4), half=False)
    step()  # what follows isn't held up
