"""Packs for a card: its numbers, and a first step that compiles nothing."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import fake_libcuda
import pytest

from tilewright.cli.card import numbers, target_of
from tilewright.codegen.target import gpu
from tilewright.runtime.driver import PROTOTYPES

H100 = "132,3352.32,52.4288"  # as the fake driver says

SCRIPT = """
import tilewright as torch

device = "cuda" if torch.cuda.is_available() else "cpu"
net = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.GELU(), torch.nn.LayerNorm(128))
net.append(torch.nn.Linear(128, 10)).to(device)
optimizer = torch.optim.AdamW(net.parameters())
x, y = torch.zeros(32, 64).to(device), torch.zeros(32, dtype=torch.int64).to(device)
for _ in range(3):
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(net(x), y)
    loss.backward()
    optimizer.step()
    loss.item()
print(device)
"""
THERE = """
import runpy
import sys

from tilewright.runtime import offline


def none(requests, processes=None):
    assert not requests, [r.name for r in requests]
    return []


offline.compile_many = none
runpy.run_path(sys.argv[1])
"""


def test_numbers_of_a_card() -> None:
    target = target_of("sm_90", H100)
    assert target.chip.multiprocessors == 132 and numbers(target.chip) == H100
    assert (target.chip.bandwidth, target.chip.cache) == (3352.32e9, 50 << 20)
    assert target_of("sm_90", "").chip is gpu("sm_90").chip
    for said in ("132", "132x3352x52", "132,3352,52,1"):
        with pytest.raises(ValueError, match=r"multiprocessors.*got '132"):
            target_of("sm_90", said)


@pytest.mark.slow
@pytest.mark.triton
@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc builds the fake libcuda.so.1")
def test_a_first_step_compiles_nothing(tmp_path: Path, run_python: Callable[..., str]) -> None:
    """With the numbers of the architecture's table the products of this script are others."""
    script, file = tmp_path / "train.py", tmp_path / "kernels.pack"
    script.write_text(SCRIPT)
    command = "pack", str(script), "--card", H100, "-o", str(file)
    assert "kernels for sm_90" in run_python("from tilewright.cli import main; main()", *command)
    library = str(fake_libcuda.build(tmp_path, PROTOTYPES))
    environment = {
        "LD_LIBRARY_PATH": library,
        "TRITON_LIBCUDA_PATH": library,
        "TW_CACHE": "0",
        "TW_KERNELS": str(file),
    }
    assert run_python(THERE, str(script), env=environment) == "cuda\n"
