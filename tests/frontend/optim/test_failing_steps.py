"""Programs that go on after a step that failed: for want of memory, or for a wrong value."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_cuda import FakeCuda, installed
from paths import SUPPORT

import tilewright as tw
from tilewright import recording
from tilewright.runtime import devices
from tilewright.runtime.device import OutOfMemoryError

HUGE = 1 << 45  # elements: no machine has the memory

OPTIMIZERS = {
    "SGD": lambda torch, p: torch.optim.SGD(p, lr=0.1),
    "momentum": lambda torch, p: torch.optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.5),
    "Adam": lambda torch, p: torch.optim.Adam(p, lr=0.01),
    "AdamW": lambda torch, p: torch.optim.AdamW(p, lr=0.01, amsgrad=True),
    "RMSprop": lambda torch, p: torch.optim.RMSprop(p, lr=0.01, momentum=0.5),
    "NAdam": lambda torch, p: torch.optim.NAdam(p, lr=0.01),
}


def model(torch: Any) -> Any:
    """Two layers whose weights are the same for both libraries."""
    made = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 4))
    with torch.no_grad():
        for k, p in enumerate(made.parameters()):
            numbers = [math.sin(7 * i + k) / 2 for i in range(p.numel())]
            p.copy_(torch.tensor(numbers).reshape(p.shape))
    return made


def batch(torch: Any, step: int) -> tuple[Any, Any]:
    x = torch.tensor([[(i + j + step) % 5 / 5.0 for j in range(6)] for i in range(3)])
    return x, torch.tensor([step % 4, (step + 1) % 4, 2])


def too_large(torch: Any, scores: Any) -> Any:
    """Scores that need memory which isn't there."""
    large = torch.zeros(HUGE)  # PyTorch raises here
    return scores + (large + scores.sum()).sort()[0][0]


BREAKS: dict[str, Callable[[Any, Any, Any], tuple[Any, Any]]] = {
    "class": lambda torch, scores, y: (scores, y + 4),
    "position": lambda torch, scores, y: (scores.gather(1, torch.tensor([[0, 1, 7, 2]] * 3)), y),
    "dead position": lambda torch, scores, y: (scores, y + 0 * (scores[0][y + 9] is None)),
    "memory": lambda torch, scores, y: (too_large(torch, scores), y),
}


def train(
    torch: Any, optimizer: str, broken: str, at: int, late: bool
) -> tuple[list[float], int, list[Any]]:
    """Losses of the steps that were made, how many weren't, and the weights."""
    net = model(torch)
    update = OPTIMIZERS[optimizer](torch, net.parameters())
    losses, errors = [], 0
    for step in range(6):
        x, y = batch(torch, step)
        update.zero_grad()
        try:
            scores = net(x)
            if step == at:
                scores, y = BREAKS[broken](torch, scores, y)
            loss = torch.nn.functional.cross_entropy(scores, y)
            loss.backward()
            update.step()
            losses.append(loss.detach() if late else loss.item())
        except (RuntimeError, IndexError):
            errors += 1
    found = [p.tolist() for p in net.parameters()]
    return [float(loss) for loss in losses], errors, found


@pytest.mark.sampled(2)
@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("at", [0, 2])
@pytest.mark.parametrize("broken", BREAKS)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_the_steps_that_are_left_are_pytorchs(
    optimizer: str, broken: str, at: int, late: bool, torch: Any
) -> None:
    expected, failed, weights = train(torch, optimizer, broken, at, late)
    assert failed == 1
    losses, errors, found = train(tw, optimizer, broken, at, late)
    assert errors == failed
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    for ours, theirs in zip(found, weights, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)


SCRIPT = """
import sys
sys.path[:0] = {tests!r}
import tilewright, test_failing_steps as t
for optimizer in ("momentum", "Adam"):
    for broken in t.BREAKS:
        losses, errors, weights = t.train(tilewright, optimizer, broken, 2, False)
        print(errors, *losses, *weights[3])
"""


@pytest.mark.slow
@pytest.mark.parametrize("env", [{"TW_CPU": "numpy"}, {"TW_CPU": "llvm"}, {"TW_EAGER": "1"}])
def test_on_each_engine(env: dict[str, str], torch: Any, run_python: Any) -> None:
    folders = [str(SUPPORT), str(Path(__file__).parent)]
    lines = run_python(SCRIPT.format(tests=folders), env=env).splitlines()
    for optimizer in ("momentum", "Adam"):
        for broken in BREAKS:
            losses, errors, weights = train(torch, optimizer, broken, 2, False)
            found = [float(word) for word in lines.pop(0).split()]
            np.testing.assert_allclose(found, [errors, *losses, *weights[3]], rtol=1e-4, atol=1e-6)


def test_two_models_and_values_that_are_read_late(torch: Any) -> None:
    """The step of one fails, the other one's is made; both epochs are computed when it is asked."""

    def run(lib: Any) -> list[Any]:
        nets = [model(lib), model(lib)]
        updates = [lib.optim.SGD(n.parameters(), lr=0.1, momentum=0.9) for n in nets]
        losses, total, errors = [], lib.zeros(()), 0
        total = total + 0
        for step in range(5):
            x, y = batch(lib, step)
            for k, (net, update) in enumerate(zip(nets, updates)):
                update.zero_grad()
                try:
                    wrong = 4 if (step, k) in ((1, 0), (3, 1)) else 0
                    loss = lib.nn.functional.cross_entropy(net(x), y + wrong)
                    loss.backward()
                    update.step()
                    losses.append(loss.detach())
                    with lib.no_grad():
                        total += loss
                except IndexError:
                    errors += 1
        weights = [w for net in nets for p in net.parameters() for w in p.flatten().tolist()]
        return [errors, total.item(), *[v.item() for v in losses], *weights]

    np.testing.assert_allclose(run(tw), run(torch), rtol=1e-4, atol=1e-6)


def test_gradients_of_the_good_batches_are_kept(torch: Any) -> None:
    """One of several accumulated batches is too large, which shows when its loss is read."""

    def run(lib: Any) -> list[Any]:
        net = model(lib)
        update = lib.optim.SGD(net.parameters(), lr=0.1)
        for step in range(4):
            x, y = batch(lib, step)
            try:
                scores = net(x)
                if step == 1:
                    scores = too_large(lib, scores)
                loss = lib.nn.functional.cross_entropy(scores, y)
                loss.item()
                loss.backward()
            except RuntimeError:
                continue
        update.step()
        return [w for p in net.parameters() for w in p.flatten().tolist()]

    np.testing.assert_allclose(run(tw), run(torch), rtol=1e-4, atol=1e-6)


# ---- what is left ----------------------------------------------------------------------------


def test_what_has_no_room_fails_alone() -> None:
    """Its dependents fail with it, all else is computed, and the error is raised once."""
    x = tw.arange(4.0)
    recording.flush()
    x.add_(1)
    large = (tw.zeros(HUGE) + x.sum()).sort()[0]
    y, after = x * 2, large[:2] + 1
    with pytest.raises(OutOfMemoryError, match="can't allocate memory") as found:
        recording.flush()
    assert isinstance(found.value, RuntimeError) and isinstance(found.value, MemoryError)
    recording.flush()
    assert (x.tolist(), y.tolist(), (y + x).tolist()) == (
        [1, 2, 3, 4],
        [2, 4, 6, 8],
        [3, 6, 9, 12],
    )
    for failed in (large, after):
        with pytest.raises(RuntimeError):
            failed[0].item()


def refusing(monkeypatch: Any, kind: type, allowed: int) -> list[int]:
    """Have a host device refuse each allocation but the first `allowed` ones; counts them."""
    made = [0]
    for name in ("empty", "arena"):
        usual = getattr(kind, name)

        def counted(self: Any, *args: Any, usual: Any = usual) -> Any:
            made[0] += 1
            if made[0] > allowed:
                raise MemoryError("refused")
            return usual(self, *args)

        monkeypatch.setattr(kind, name, counted)
    # Every buffer is made by the two, whatever its size.
    monkeypatch.setattr(kind, "maker", lambda self, *about: lambda: self.empty(*about))
    return made


@pytest.mark.usefixtures("fused")
@pytest.mark.parametrize("allowed", range(12))
def test_any_allocation_may_fail(allowed: int, monkeypatch: Any, torch: Any) -> None:
    """A step is made as a whole or not at all, whichever buffer it is that has no room."""
    kind = type(devices.get("cpu"))

    def run(lib: Any, skipped: int | None) -> list[Any]:
        net = model(lib)
        update = lib.optim.Adam(net.parameters(), lr=0.01)
        seen: list[Any] = []
        for step in range(4):
            x, y = batch(lib, step)
            if lib is torch and step == skipped:
                continue
            if lib is tw and step == 2:  # memory is bound when a plan is made
                recording.flush()
                recording.clear_tables()
            update.zero_grad()
            loss = lib.nn.functional.cross_entropy(net(x), y)
            loss.backward()
            if lib is tw and step == 2:
                with monkeypatch.context() as patch:
                    refusing(patch, kind, allowed)
                    try:
                        update.step()
                    except OutOfMemoryError:
                        seen.append(step)
                        continue
            else:
                update.step()
        weights = [w for p in net.parameters() for w in p.flatten().tolist()]
        return [bool(seen), *weights]

    failed, *weights = run(tw, None)
    _, *expected = run(torch, 2 if failed else None)
    np.testing.assert_allclose(weights, expected, rtol=1e-4, atol=1e-6)
    assert failed or allowed


@pytest.fixture
def fake() -> Iterator[FakeCuda]:
    with installed() as driver:
        yield driver


@pytest.mark.slow
@pytest.mark.triton
def test_a_gpu_without_room_for_a_batch(fake: FakeCuda, torch: Any) -> None:
    def run(lib: Any, device: str) -> list[Any]:
        net = model(lib).to(device)
        update = lib.optim.Adam(net.parameters(), lr=0.01)
        errors = 0
        for step in range(4):
            x, y = (t.to(device) for t in batch(lib, step))
            if step == 2:
                if lib is torch:
                    errors += 1
                    continue
                lib.cuda.synchronize()
                fake.capacity[0] = lib.cuda.memory_reserved() + (8 << 10)
                x, y = x.repeat(4096, 1), y.repeat(4096)
            update.zero_grad()
            try:
                loss = lib.nn.functional.cross_entropy(net(x), y)
                loss.backward()
                update.step()
            except RuntimeError:
                errors += 1
        return [errors, *[w for p in net.parameters() for w in p.cpu().flatten().tolist()]]

    np.testing.assert_allclose(run(tw, "cuda"), run(torch, "cpu"), rtol=1e-4, atol=1e-6)
