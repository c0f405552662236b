"""PyTorch's paths of names that stand elsewhere here."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

import tilewright as tw
from tilewright.paths import PATHS


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore:`torch.jit.\\w+` is deprecated:DeprecationWarning")
@pytest.mark.parametrize("path", sorted(PATHS))
def test_every_name_is_there_and_pytorchs(torch: Any, path: str) -> None:
    ours = importlib.import_module(f"tilewright.{path}")
    theirs = importlib.import_module(f"torch.{path}")
    for name in (n for names in PATHS[path].values() for n in names.split()):
        assert getattr(ours, name) is not None and hasattr(theirs, name)
    assert not hasattr(ours, "no_such_name")


def test_a_path_shadows_no_function(run_python: Any) -> None:
    code = (
        "import tilewright.nn.utils.weight_norm, tilewright.nn.utils.clip_grad as clip\n"
        "from tilewright.optim.adamw import AdamW\n"
        "from tilewright import functional, nn\n"
        "assert callable(nn.utils.weight_norm) and nn.utils.clip_grad is clip\n"
        "print(AdamW.__name__, functional.einsum.__name__, clip.clip_grad_norm_.__name__)"
    )
    assert run_python(code).split() == ["AdamW", "einsum", "clip_grad_norm_"]
    assert tw.nn.utils.clip_grad.clip_grad_norm_ is tw.nn.utils.clip_grad_norm_
