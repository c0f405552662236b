"""Programs whose sizes change from step to step: how often kernels are compiled for them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_cuda import FakeCuda, compile_many, installed
from networks import values
from triton_kernels import activation

import tilewright
from tilewright.codegen.schedule import Schedule
from tilewright.codegen.triton import Emitted, emit
from tilewright.runtime import devices, offline
from tilewright.runtime.cuda import image, pack
from tilewright.runtime.cuda.launch import WARM, Launcher, Provisional
from tilewright.runtime.cuda.promises import EXACT, Promises

pytestmark = pytest.mark.triton


@pytest.fixture
def fake() -> Iterator[FakeCuda]:
    with installed() as driver:
        yield driver


def emitted(rows: int, columns: int) -> Emitted:
    return emit(activation(rows, columns), Schedule())


def test_promises_hold_for_all_sizes_that_come() -> None:
    promises = Promises()
    made = []
    for n in (64, 24, 20, 36, 33, 20, 64, 24):
        kernel = emitted(n, 3)
        found = promises.of(kernel)
        sizes = {a.name: a.value for a in kernel.arguments if a.role == "size"}
        for name, divisor in found.items():
            assert name not in sizes or sizes[name] % divisor == 0
        made.append(found)
    exact = [emitted(n, 3).divisible for n in (64, 24, 20, 33)]
    assert made[:5] == [*exact[:3], exact[2], exact[3]]
    assert made[5] == exact[3] != exact[2], "a kernel for any size serves those, too"
    assert made[6:] == exact[:EXACT], "the first kinds of sizes stay exact"


def rows_of(x: tilewright.Tensor) -> tilewright.Tensor:
    return (x - x.mean(-1, keepdim=True)).square().sum(-1) / x.shape[0]


def expected(x: np.ndarray) -> np.ndarray:
    wide = x.astype(np.float64)
    return ((wide - wide.mean(-1, keepdims=True)) ** 2).sum(-1) / len(x)


def test_many_sizes_share_kernels(fake: FakeCuda) -> None:
    """Divisors of means are arguments, and of sizes the compiler learns what all have in common."""
    for rows in range(17, 33):
        x = values(rows, 40)
        found = rows_of(tilewright.tensor(x, device="cuda")).cpu().numpy()
        np.testing.assert_allclose(found, expected(x), rtol=1e-4, atol=1e-5)
    assert fake.calls["cuModuleLoadData"] <= EXACT + 2


def test_a_size_that_repeats_gets_its_own_kernel(fake: FakeCuda) -> None:
    for rows in (17, 24, 33):
        rows_of(tilewright.tensor(values(rows, 40), device="cuda")).tolist()
    loaded = fake.calls["cuModuleLoadData"]
    x = values(20, 40)
    for run in range(1, WARM + 3):
        y = rows_of(tilewright.tensor(x, device="cuda")).cpu().numpy()
        np.testing.assert_allclose(y, expected(x), rtol=1e-4, atol=1e-5)
        assert fake.calls["cuModuleLoadData"] == loaded + (run > WARM)


def test_a_launcher_is_provisional_until_it_repeats(fake: FakeCuda) -> None:
    device = devices.get("cuda:0")
    launchers: list[Launcher] = []
    for n in (80, 72, 65, 68):
        (launch,) = device.compile_all([activation(n, 3)])
        assert isinstance(launch, Launcher)
        launchers.append(launch)
    assert [isinstance(each, Provisional) for each in launchers] == [False, False, False, True]


def test_a_pack_has_kernels_for_all_sizes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They were compiled for these very sizes, and are not compiled again for several."""
    asked: list[offline.Request] = []

    def compiler(requests: Any, processes: int | None = None) -> list[offline.Compiled]:
        asked.extend(requests)
        return compile_many(requests, processes or 1)

    kernels = [activation(n, 3) for n in (80, 72, 65, 68)]
    monkeypatch.setenv("TW_CACHE", "0")
    monkeypatch.setattr(offline, "compile_many", compiler)
    monkeypatch.setattr(image, "_compiler", lambda: "fake")
    file = tmp_path / "kernels.pack"
    pack.write(file, "sm_90", pack.compiled(kernels, "sm_90").images)
    monkeypatch.setenv("TW_KERNELS", str(file))
    asked.clear()
    with installed(compiler=compiler):
        card: Any = devices.get("cuda:0")
        monkeypatch.setattr(card, "_schedule", card._tuned)
        launchers = [card.compile(kernel) for kernel in kernels]
    assert not asked
    assert not any(isinstance(each, Provisional) for each in launchers)
