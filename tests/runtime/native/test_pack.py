"""The pack of ready object code: the same results, and no trust in a wrong file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilewright.runtime import baseline
from tilewright.runtime.baseline import maps
from tilewright.runtime.native import host, jit, launch, pack

pytestmark = pytest.mark.skipif(
    host.reason_against() is not None or not host.is_proven() or not pack.fits(),
    reason="no native code here, or not this processor",
)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    kernels = list(maps.all_for(pack.MACHINE))
    file = tmp_path_factory.mktemp("pack") / "x.pack"
    codes = {name: code for name, _, code in kernels}
    codes.update((name, code + pack.MACHINE.attributes) for name, code in baseline.all_code())
    images = {name: jit.image_of(code, pack.MACHINE) for name, code in codes.items()}
    pack.write(images, {name: layout for name, layout, _ in kernels}, file)
    return file


@pytest.fixture
def own(made: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(pack, "FILE", made)
    pack._content.cache_clear()
    yield made
    pack._content.cache_clear()


@pytest.mark.slow
def test_kernels_are_those_compiled_for_this_machine(own: Path) -> None:
    rng = np.random.default_rng(0)
    count = 0
    for name, layout, code in maps.all_for(host.machine()):
        image = pack.image(name)
        assert image is not None and pack.layout(name) == layout
        ready = launch.Flat(layout, jit.link_image(name, image, "kernel"))
        compiled = launch.Flat(layout, jit.link(code, "kernel"))
        if name == "random bits":
            arrays, dtype, numbers = [], np.dtype(np.uint32), [5, 7]
        else:
            dtype, numbers = np.dtype(name.split()[-1]), [0.5] * len(layout.scalars)
            arrays = [rng.uniform(-5, 5, 70_001).astype(dtype) for _ in layout.order]
            if name.startswith("where"):
                arrays = [arrays[0] > 0 if i == 0 else a for i, a in zip(layout.order, arrays)]
        for size in (1, 15, 70_001):
            both = [np.zeros(size, dtype) for _ in range(2)]  # comparisons write bytes
            for kernel, out in zip((ready, compiled), both, strict=True):
                kernel((out, *[a[:size] for a in arrays]), size, numbers)
            np.testing.assert_array_equal(*both, err_msg=name)
        count += 1
    assert count > 40


def test_a_wrong_file_is_no_pack(own: Path, monkeypatch: Any, tmp_path: Path) -> None:
    assert pack.image("exp float32") is not None and pack.image("no such op") is None
    assert pack.layout("no such op") is None
    whole = own.read_bytes()
    for content in (b"", b"{}", b"[1]\n", whole.replace(b'"sources": "', b'"sources": "0')):
        wrong = tmp_path / "wrong.pack"
        wrong.write_bytes(content)
        monkeypatch.setattr(pack, "FILE", wrong)
        pack._content.cache_clear()
        assert pack.image("exp float32") is None
    monkeypatch.setattr(pack, "FILE", tmp_path / "missing.pack")
    pack._content.cache_clear()
    assert pack.image("exp float32") is None


def test_a_stale_pack_is_said(
    own: Path, monkeypatch: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """First steps take ten times as long without a pack, so TW_DEBUG says that there is none."""
    stale = tmp_path / "stale.pack"
    stale.write_bytes(own.read_bytes().replace(b'"sources": "', b'"sources": "0'))
    monkeypatch.setenv("TW_DEBUG", "1")
    for file, state in ((stale, "other sources"), (tmp_path / "missing.pack", "is not there")):
        monkeypatch.setattr(pack, "FILE", file)
        pack._content.cache_clear()
        assert pack.image("exp float32") is None
        assert state in capsys.readouterr().err


def test_a_first_call_compiles_nothing(run_python: Any, own: Path) -> None:
    """With a pack, neither LLVM's optimizer nor the compiler's modules are needed."""
    code = """
import sys
from pathlib import Path
from tilewright.runtime.native import pack
pack.FILE = Path(sys.argv[1])
import tilewright as torch
from tilewright.runtime.native import jit
x = torch.linspace(-1, 1, 9)
print(x.exp().sum().item() > 9, x.tanh().sum().item())
x = torch.ones(1, 2, 4, 4).requires_grad_()
torch.nn.functional.conv2d(x, torch.ones(3, 2, 3, 3)).sum().backward()
print(x.grad.sum().item())
print("tilewright.codegen.fusion" in sys.modules, jit.statistics.compiled)
"""
    said = run_python(code, str(own), env={"TW_TIER": "auto"}).split()
    assert said[0] == "True" and said[2:4] == ["216.0", "False"]
    assert int(said[4]) <= 1, "only the pool's entry points, which this pack lacks"
