"""Devices and types by name, beside PyTorch."""

from __future__ import annotations

import copy
import importlib
import pickle
import pkgutil
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from expressions import assert_alike

import tilewright as tw

DEVICES = """
torch.device("cpu") == "cpu"
torch.device("cpu") == "auto"
torch.device("cpu") != "cpu"
torch.device("cpu") == 3
torch.device("cpu") == torch.device("cpu:0")
torch.device("cpu", 0)
torch.device("cpu:0")
torch.device("cpu:00")
torch.device("cpu:01")
torch.device("cpu:")
torch.device("cpu:1", 2)
torch.device("cpu:1", 1)
torch.device(torch.device("cuda:0"), 1)
torch.device(torch.device("cuda"), 1)
torch.device(torch.device("cuda:1"))
torch.device("cuda", None)
torch.device("cuda", -1)
torch.device("cuda", -2)
torch.device("cuda:-1")
torch.device(-1)
torch.device(True)
torch.device(None)
torch.device(1.5)
torch.device()
torch.device("")
torch.device("foo")
torch.device("CPU")
torch.device("mps")
torch.device("meta")
torch.device(type="cuda", index=1)
torch.device(type="cuda")
torch.device(device="cuda")
torch.device("cuda:1").index
str(torch.device("cuda:1"))
torch.device("cpu") in ("cpu", "cuda")
torch.device("cpu") in {"cpu"}
torch.empty(0, device="cpu:1").device
torch.empty(0, device="cpu:0").device
torch.empty(0, device=torch.device("cpu", 3)).device
torch.empty(0, device="cpu:1").to("cpu").device
(torch.ones(1, device="cpu:1") + torch.ones(1)).device
torch.zeros(1).to("cpu:2").device
torch.zeros(1, device="auto").device
torch.zeros(1).to("auto")
torch.device("cpu").type
repr(torch.device("cuda:1"))
torch.tensor(1.).device == "cpu"
torch.get_default_device() == "cpu"
torch.zeros(2).is_cpu
torch.zeros(2).to(device="cpu", dtype=torch.int).dtype
torch.device("cuda") < torch.device("cpu")
setattr(torch.device("cpu"), "type", 3)
""".strip().splitlines()

TYPES = """
torch.zeros(1).type("torch.DoubleTensor")
torch.zeros(1).type("torch.double")
torch.zeros(1).type("double")
torch.zeros(1).type("float64")
torch.zeros(1).type("torch.FloatTensor")
torch.zeros(1).type(torch.float64)
torch.zeros(1).type(dtype=torch.float64)
torch.zeros(1).type(dtype="torch.LongTensor")
torch.zeros(1).type(torch.DoubleTensor)
torch.zeros(1).type(torch.int8).type()
torch.zeros(1).type("cpu")
torch.zeros(1).type(float)
torch.zeros(1).type(int)
torch.zeros(1).type(bool)
torch.zeros(1).type(torch.bool, non_blocking=True).type()
torch.zeros(1).type(3)
[torch.zeros(1).type(f"torch.{n}Tensor") for n in "Bool BFloat16 Half Byte Char Short Int".split()]
torch.zeros(1).type("torch.Tensor")
torch.FloatTensor([1,2])
torch.FloatTensor(2,3).shape
torch.LongTensor([1,2])
torch.LongTensor(2).dtype
torch.FloatTensor
torch.ByteTensor([True])
isinstance(torch.zeros(1), torch.FloatTensor)
isinstance(torch.zeros(1), torch.LongTensor)
isinstance(torch.zeros(1).long(), torch.LongTensor)
torch.DoubleTensor().dtype
torch.BoolTensor([1,0])
torch.zeros(1).new(3).shape
torch.zeros(1).new([1,2]).dtype
torch.zeros(2).to("cpu", torch.int).dtype
torch.zeros(2).to(torch.zeros(2).int()).dtype
torch.zeros(2).to(other=torch.zeros(2).int()).dtype
torch.zeros(2).to()
torch.zeros(2).to("float")
torch.Tensor()
torch.Tensor(3).shape
torch.Tensor(2,3).shape
torch.Tensor(torch.Size([2,3])).shape
torch.Tensor((2,3))
torch.Tensor([[1,2],[3,4]])
torch.Tensor(np.ones(3))
torch.Tensor(np.int64(3)).shape
torch.Tensor(1.5)
torch.Tensor(True).shape
torch.Tensor(range(3))
torch.Tensor(torch.tensor(3.))
torch.Tensor(torch.tensor(3)).shape
torch.Tensor(torch.ones(2).long())
torch.Tensor(torch.tensor(2), 3).shape
torch.Tensor([])
torch.Tensor("abc")
torch.Tensor(None)
torch.Tensor(2, [3])
torch.Tensor(-1)
torch.Tensor(data=[1,2])
torch.Tensor([1,2], device="cpu")
torch.Tensor({1,2})
torch.FloatTensor(torch.ones(2).double())
torch.FloatTensor(np.ones(2))
torch.LongTensor([1.7, 2.2])
torch.LongTensor(np.array([1,2], dtype=np.int32))
torch.LongTensor(np.ones(2))
torch.ByteTensor([300])
torch.ones(2).long().new(2,2).dtype
torch.ones(2).long().new([1.5])
torch.ones(2).new(torch.ones(3))
torch.ones(2).new()
torch.ones(2).new(torch.ones(3).long())
torch.FloatTensor.dtype
torch.FloatTensor.__name__
torch.FloatTensor.__module__
torch.FloatTensor.is_cuda
issubclass(torch.FloatTensor, torch.Tensor)
isinstance(torch.nn.Parameter(torch.ones(2)), torch.FloatTensor)
isinstance(3, torch.FloatTensor)
torch.FloatTensor is torch.FloatTensor
torch.zeros(2).type(torch.Tensor)
torch.zeros(2).long().type(torch.Tensor)
torch.zeros(2).type(torch.nn.Parameter)
torch.zeros(2, dtype=torch.FloatTensor)
torch.float == torch.FloatTensor
torch.BFloat16Tensor([1]), torch.HalfTensor([1.5])
torch.tensor([1,2]).type_as(torch.ones(1)).dtype
torch.UInt16Tensor
""".strip().splitlines()


@pytest.mark.parametrize("source", DEVICES)
def test_a_device_as_in_pytorch(torch: ModuleType, source: str) -> None:
    assert_alike(torch, tw, source)


@pytest.mark.parametrize("source", TYPES)
def test_a_type_as_in_pytorch(torch: ModuleType, source: str) -> None:
    assert_alike(torch, tw, source)


def test_a_device_is_a_value() -> None:
    for name in ("cpu", "cuda:1", "interpret"):
        device = tw.device(name)
        assert copy.deepcopy(device) == pickle.loads(pickle.dumps(device)) == device
        assert {device: 1}[tw.device(name)] == 1
    with pytest.raises(AttributeError):
        tw.device("cpu").type = "cuda"


def test_there_is_one_device_of_a_kind_that_has_no_numbers() -> None:
    with tw.device("cpu:3"):
        assert str(tw.zeros(1).device) == "cpu"
    assert str(tw.zeros(1).to("interpret:1").device) == "interpret"


def test_names_that_come_at_their_first_use_are_there() -> None:
    assert [name for name in (*tw._LAZY, *tw._SUBMODULES) if not hasattr(tw, name)] == []


def _modules() -> list[str]:
    found = pkgutil.walk_packages(tw.__path__, "tilewright.")
    inner = ("tilewright.ir", "tilewright.codegen", "tilewright.runtime", "tilewright.__main__")
    return [each.name for each in found if not each.name.startswith(inner)]


def test_a_name_that_is_nowhere_is_an_attribute_error() -> None:
    for name in ["tilewright", *_modules()]:
        try:
            module = importlib.import_module(name)
        except ModuleNotFoundError as error:
            assert "needs the package" in str(error)
            continue
        for missing in ("missing", "testing", "fx", "__missing__"):
            assert not hasattr(module, missing) or missing in vars(module), (name, missing)


def test_where_a_module_is_looked_for(tmp_path: Path, run_python: Any) -> None:
    script = tmp_path / "looks.py"
    script.write_text(
        "from importlib.util import find_spec\n"
        "import importlib\n"
        "print(find_spec('torch') is None, find_spec('torch.nn') is None)\n"
        "print(find_spec('torch.nope'), find_spec('torch.nn.nope'), find_spec('torch.fx.nope'))\n"
        "for name in ('torch.nope', 'torch.nn.nope', 'torch.nope.below', 'torch.functions.call'):\n"
        "    try: importlib.import_module(name)\n"
        "    except ModuleNotFoundError as error: print(error.name, '|', error)\n"
        "try: find_spec('torch.nope.below')\n"
        "except ModuleNotFoundError as error: print(error.name)\n"
        "import torch\n"
        "print(hasattr(torch, 'testing'), hasattr(torch, 'missing'))\n"
    )
    code = "import sys; from tilewright.cli import main; main()"
    lines = run_python(code, "run", str(script)).splitlines()
    assert lines[:2] == ["False False", "None None None"]
    refused = ("torch.nope", "torch.nn.nope", "torch.nope", "torch.functions")
    for line, name in zip(lines[2:6], refused, strict=True):
        assert line.startswith(f"{name} | No module named {name!r}: tilewright, which stands in")
    assert lines[6:] == ["torch.nope", "True False"]
