"""Programs of the GPU benchmark (`bench/gpu_tasks`) on the fake driver, beside PyTorch on the CPU.

Kernels are run by Triton's interpreter, so the values are those of the compiler and the runtime of
GPUs.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
from fake_cuda import installed
from paths import BENCH

import tilewright as tw

pytestmark = [pytest.mark.triton, pytest.mark.torch]

QUICK = (
    "control flow that depends on values",
    "weights shared, frozen and in groups; hooks",
    "views, strides, in-place writes seen by all",
)
LONG = (
    "VAE",
    "GRU that predicts a series, Huber loss, RMSprop",
    "gradient accumulation over four batches",
    "EMA of weights by AveragedModel, Adam with foreach",
    "torch.compile(model) and a compiled function",
    "batches of other lengths at each step",
    "second derivatives: a penalty on gradients, Hessian-vector products",
    "actor and critic with replay and a target network",
    "masks, positions and writes",
    "sort, topk, unique, nonzero, searches and counts",
    "FFT: filters, spectra, shifts",
    "linalg: solve, Cholesky, SVD, QR, eigenvalues",
    "gradients through linalg and FFT",
    "sparse embedding with SparseAdam, sparse products",
    "dtypes: halves, whole numbers, booleans, complex, overflow and NaN",
    "pictures: sampled, resized, unfolded, padded, pooled",
    "losses and activations, with their gradients",
    "saved and loaded: state dicts, map_location, another framework's file",
)


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.setenv("TW_TIER", "auto")  # what the benchmarks' imports would set
    monkeypatch.syspath_prepend(str(BENCH))
    before = set(sys.modules)
    import gpu_programs

    yield gpu_programs
    for name in set(sys.modules) - before:
        if name == "timing" or name.startswith("gpu_"):
            del sys.modules[name]


def anywhere(value: Any) -> Any:
    """A plain value without the devices of its tensors."""
    if isinstance(value, tuple):
        return value[0], value[1], "", value[3]
    if isinstance(value, dict):
        return {key: anywhere(each) for key, each in value.items()}
    return [anywhere(each) for each in value] if isinstance(value, list) else value


@pytest.mark.filterwarnings("ignore:Sparse invariant checks", "ignore:.*script_method")  # PyTorch's
@pytest.mark.parametrize(
    "name", [*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in LONG)]
)
def test_values_are_those_of_pytorch(bench, torch, name):
    program = bench.programs()[name]

    def values(torch: Any, device: str) -> Any:
        step = program.make(torch, device)
        return [bench.plain(torch, step()) for _ in range(2)]

    with installed(keeping=True):
        ours = values(tw, "cuda")
    found = bench.differences(anywhere(ours), anywhere(values(torch, "cpu")), program.tolerance)
    assert list(found) == []


def test_what_must_raise_between_devices(bench):
    """PyTorch's classes of errors, which its CPU alone can't show."""
    with installed(keeping=True):
        found = bench.programs()["tensors of CPU and GPU mixed, and what must raise"].make(
            tw, "cuda"
        )()
        kinds = [str(found[name].device) for name in ("back", "types", "picked")]
    assert [found[name] for name in ("sum", "product", "layer", "cat")] == ["RuntimeError"] * 4
    assert found["numpy"] == "TypeError"
    assert found["device"] == "cuda" and found["same"] is True and found["made"] is True
    assert kinds == ["cuda:0"] * 3 and found["both"].device.type == "cpu"


@pytest.mark.parametrize(
    "name",
    ["a step captured as a CUDA graph", pytest.param("streams and events", marks=pytest.mark.slow)],
)
def test_what_needs_a_card(bench, torch, name):
    """A captured step trains as one that is called; streams and events say what they must."""
    program = next(p for n, p in bench.programs().items() if n.startswith(name))
    with installed(keeping=True):
        step = program.make(tw, "cuda")
        found = [bench.plain(tw, step()) for _ in range(2)]
    if name.startswith("streams"):
        import gpu_tasks

        x = gpu_tasks.draw(torch, 512, 512)
        weight = gpu_tasks.draw(torch, 512, 512, seed=1, scale=0.04)
        for y, z, *flags in found:
            assert y[2] == "cuda" and z[2] == "cpu" and flags == [True] * 3
            assert list(bench.unequal(y[3], (x @ weight).numpy(), 1e-3, "")) == []
            assert list(bench.unequal(z[3], (x @ weight @ weight).numpy(), 1e-3, "")) == []
    else:
        assert list(bench.differences(found, called(torch), program.tolerance)) == []


def called(torch: Any) -> list[float]:
    """The losses of the captured program's steps by plain calls: three that warm up with the first
    batch, then one for each batch. The call that is captured computes nothing."""
    import gpu_tasks
    from gpu_tasks.loops import perceptron

    model = gpu_tasks.settle(torch, perceptron(torch, 64, 128, 8))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    y = gpu_tasks.choose(torch, 8, 64)
    losses = []
    for seed in (0, 0, 0, 0, 1):
        optimizer.zero_grad()
        x = gpu_tasks.draw(torch, 64, 64, seed=seed)
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses[3:]
