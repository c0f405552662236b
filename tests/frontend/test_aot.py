"""Models compiled ahead of time: written, read and run, on a driver without a GPU."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fake_cuda
import numpy as np
import pytest
from fake_kernels import large_programs

import tilewright as tw
from tilewright import nn
from tilewright.runtime.cuda import packed
from tilewright.runtime.cuda.packed import PackError

pytest.importorskip("triton")


@pytest.fixture
def gpu() -> Iterator[fake_cuda.FakeCuda]:
    with fake_cuda.installed() as fake:
        yield fake


def net() -> Any:
    tw.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.5),
        nn.Linear(64, 10),
        nn.LogSoftmax(1),
    )


def compiled(model: Any, args: Any, path: Path, **options: Any) -> packed.Package:
    return tw.aot.compile(model, args, path, schedule=large_programs, **options)


def test_a_network(gpu: Any, tmp_path: Path) -> None:
    model, x = net(), tw.randn(3, 1, 8, 8)
    path = tmp_path / "net.tw"
    compiled(model, (x,), path)
    loaded = tw.aot.load(path)
    y = loaded(x)
    assert y.device.type == "cpu"
    np.testing.assert_allclose(y.numpy(), model.eval()(x).detach().numpy(), rtol=1e-5, atol=1e-6)
    assert [(v.name, v.shape) for v in loaded.inputs] == [("input", (3, 1, 8, 8))]
    assert repr(loaded).startswith("CompiledModel(sm_90, input: torch.float32[3, 1, 8, 8] -> ")
    other = tw.randn(3, 1, 8, 8)
    for _ in range(5):  # graphs of launches are made and changed on the way
        np.testing.assert_allclose(
            loaded(other).numpy(), model(other).detach().numpy(), rtol=1e-5, atol=1e-6
        )
    there = loaded(other.to("cuda").transpose(2, 3))
    assert there.device == tw.device("cuda:0")
    expected = model(other.transpose(2, 3))
    np.testing.assert_allclose(
        (there + 1).cpu().numpy(), expected.detach().numpy() + 1, rtol=1e-5, atol=1e-6
    )


def test_loops_dtypes_and_several_results(gpu: Any, tmp_path: Path) -> None:
    lstm = nn.LSTM(3, 5)

    def step(x: Any, i: Any, flag: Any) -> Any:
        y, (h, _) = lstm(x)
        return {"y": y, "rest": (h.bfloat16(), i[::2] + 1, flag.logical_not(), x)}

    args = (tw.randn(4, 2, 3), tw.arange(6), tw.tensor([True, False]))
    path = tmp_path / "step.tw"
    package = compiled(step, args, path)
    found = tw.aot.load(path)(*args)
    expected = step(*args)
    assert [v.name for v in package.outputs] == [
        "output_y", "output_rest_0", "output_rest_1", "output_rest_2", "output_rest_3",
    ]  # fmt: skip
    for a, b in zip(found, (expected["y"], *expected["rest"]), strict=True):
        assert a.dtype is b.dtype and a.shape == b.shape
        np.testing.assert_allclose(
            a.double().numpy(), b.detach().double().numpy(), rtol=1e-2 * (a.dtype is tw.bfloat16),
            atol=1e-6,
        )  # fmt: skip


def test_positions_out_of_range_name_the_line(gpu: Any, tmp_path: Path) -> None:
    table = nn.Embedding(4, 2)
    path = tmp_path / "table.tw"
    compiled(table, (tw.tensor([0, 3]),), path)
    loaded = tw.aot.load(path)
    assert loaded(tw.tensor([1, 2])).tolist() == table.weight[1:3].tolist()
    with pytest.raises(IndexError, match=r"index out of range in self: 7 .*test_aot\.py"):
        loaded(tw.tensor([1, 7]))
    assert loaded(tw.tensor([1, 2])).tolist() == table.weight[1:3].tolist()


def test_what_is_given_must_fit(gpu: Any, tmp_path: Path) -> None:
    path = tmp_path / "net.tw"
    compiled(nn.Linear(3, 2), (tw.ones(4, 3),), path)
    loaded = tw.aot.load(path)
    with pytest.raises(RuntimeError, match=r"input: expected torch.float32 of shape \[4, 3\], got"):
        loaded(tw.ones(5, 3))
    with pytest.raises(RuntimeError, match=r"got torch\.float64"):
        loaded(tw.ones(4, 3).double())
    with pytest.raises(TypeError, match=r"expected 1 inputs \(input\), got 2"):
        loaded(tw.ones(4, 3), 1)
    with pytest.raises(TypeError, match="expected a Tensor, got ndarray"):
        loaded(np.ones((4, 3), np.float32))
    with pytest.raises(RuntimeError, match="run on a GPU, not on cpu"):
        tw.aot.load(path, "cpu")


def test_what_can_not_be_compiled(gpu: Any, tmp_path: Path) -> None:
    path = tmp_path / "x.tw"
    with pytest.raises(PackError, match="numbers that the host draws"):
        compiled(lambda x: nn.functional.dropout(x, 0.5), (tw.ones(3),), path)
    with pytest.raises(RuntimeError, match="looks at a value"):
        compiled(lambda x: x if x.sum() > 0 else -x, (tw.ones(3),), path)
    with pytest.raises(ValueError, match="NVIDIA target"):
        compiled(lambda x: x, (tw.ones(3),), path, target="gfx942")
    assert not list(tmp_path.iterdir())


def test_another_chip_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "net.tw"
    with fake_cuda.installed():
        compiled(lambda x: x * 2, (tw.ones(3),), path, target="sm_80")
        with pytest.raises(PackError, match="compiled for sm_80, this GPU is sm_90"):
            tw.aot.load(path)
    with fake_cuda.installed(capability=(8, 6)):
        assert tw.aot.load(path)(tw.ones(3)).tolist() == [2, 2, 2]


def test_from_sm_90_on_code_is_for_one_chip(tmp_path: Path) -> None:
    path = tmp_path / "net.tw"
    with fake_cuda.installed(capability=(10, 3)):
        compiled(lambda x: x * 2, (tw.ones(3),), path, target="sm_100")
        with pytest.raises(PackError, match="compiled for sm_100, this GPU is sm_103"):
            tw.aot.load(path)


@pytest.mark.parametrize("damage", ["text", "cut", "format", "missing"])
def test_files_that_are_none(gpu: Any, tmp_path: Path, damage: str) -> None:
    path = tmp_path / "net.tw"
    compiled(nn.Linear(3, 2), (tw.ones(4, 3),), path)
    whole = path.read_bytes()
    if damage == "text":
        path.write_text("import torch")
    elif damage == "cut":
        path.write_bytes(whole[: len(whole) // 2])
    else:
        with zipfile.ZipFile(path) as old:
            contents = {n: old.read(n) for n in old.namelist()}
        if damage == "missing":
            del contents[next(n for n in contents if n.startswith("kernels/"))]
        else:
            about = contents["program.json"]
            contents["program.json"] = about.replace(b'"format": 3', b'"format": 99')
        with zipfile.ZipFile(path, "w") as new:
            for name, content in contents.items():
                new.writestr(name, content)
    with pytest.raises(PackError, match="has format 99" if damage == "format" else "damaged"):
        tw.aot.load(path)


@pytest.mark.slow
def test_it_runs_where_triton_is_not_installed(tmp_path: Path, run_python: Any) -> None:
    """Compiled for real; read, and loaded as far as the driver, without Triton."""
    path = tmp_path / "net.tw"
    package = tw.aot.compile(net(), (tw.ones(2, 1, 8, 8),), path)
    assert all(k.image.binary.startswith(b"\x7fELF") for k in package.kernels)
    out = run_python(
        f"""
import sys
sys.modules["triton"] = None
import tilewright as tw
from tilewright.runtime.cuda import packed
package = packed.read({str(path)!r})
print(len(package.kernels), all(k.image.binary[:4] == b"\\x7fELF" for k in package.kernels))
try:
    tw.aot.load({str(path)!r})
except RuntimeError as error:
    print(error)
"""
    )
    count, told = out.splitlines()[:2]
    assert count == f"{len(package.kernels)} True"
    if not tw.cuda.is_available():
        assert told.startswith("no GPU 0: ") and "riton" not in told


class Scaled(nn.Module):
    """A layer with weights of float8 and what is quantized on the way."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weight", tw.randn(24, 32).to(tw.float8_e5m2))
        self.register_buffer("scale", tw.tensor(0.5))

    def forward(self, x: Any) -> Any:
        narrow = (x * 2).to(tw.float8_e4m3fn)
        return tw._scaled_mm(
            narrow, self.weight.t(), self.scale, self.scale, out_dtype=tw.bfloat16
        ).float()


def test_float8(gpu: Any, tmp_path: Path) -> None:
    model, x = Scaled(), tw.randn(16, 32)
    compiled(model, (x,), tmp_path / "scaled.tw")
    expected = model(x).numpy()
    loaded = tw.aot.load(tmp_path / "scaled.tw")
    np.testing.assert_allclose(loaded(x).numpy(), expected, rtol=2.0**-7, atol=1e-6)
    there = model.to("cuda")(x.to("cuda"))
    np.testing.assert_allclose(there.cpu().numpy(), expected, rtol=2.0**-7, atol=1e-6)
