"""`import torch` that gives tilewright: the distribution, the finder, the version."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from pathlib import Path

import pytest

import tilewright as tw
from tilewright.as_torch import distribution
from tilewright.torch_version import TorchVersion

ASKED = """
import importlib.metadata, importlib.util, pickle, subprocess, sys

assert importlib.util.find_spec("torch") is not None
version = importlib.metadata.version("torch")
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader
import tilewright, tilewright.utils.data

assert torch is tilewright and torch.__name__ == "torch" and torch.__package__ == "tilewright"
assert sys.modules["torch.nn"] is tilewright.nn is nn
assert DataLoader is tilewright.utils.data.DataLoader and nn.__spec__.name == "tilewright.nn"
assert torch.__version__ == version
import functorch, tilewright.func.older
assert functorch is tilewright.func.older
scripted = torch.jit.script(nn.Linear(1, 1))
traced = torch.jit.trace(nn.Linear(1, 1), torch.ones(1, 1))
from torch.jit._script import RecursiveScriptModule
from torch.jit._trace import _get_trace_graph
assert torch.jit.__name__ == "torch.jit" and isinstance(traced, RecursiveScriptModule)
assert str(type(scripted)) == "<class 'torch.jit._script.RecursiveScriptModule'>"
assert str(type(traced)).startswith("<class 'torch.jit.")
for value in (torch.ones(1), torch.float32, torch.device("cpu"), torch.ones(1).shape):
    kind = type(value)
    assert kind.__module__ == "torch" and getattr(torch, kind.__name__) is kind, kind
    assert pickle.loads(pickle.dumps(kind)) is kind and pickle.loads(pickle.dumps(value)) == value
assert nn.Parameter.__module__ == "torch.nn.parameter"
assert repr(type(nn.Parameter(torch.ones(1)))) == "<class 'torch.nn.parameter.Parameter'>"
assert importlib.util.find_spec("torch.missing") is None
try:
    torch.ones(2) @ torch.ones(3)
except RuntimeError as error:
    assert str(error).endswith(f", at asks.py:{error.__traceback__.tb_lineno}"), error
for name in ("torch.missing", "torch.recording", "torch.version.x"):
    try:
        __import__(name)
    except ModuleNotFoundError as error:
        assert error.name == name and "tilewright" in str(error), error
    else:
        raise AssertionError(name)
if len(sys.argv) == 1:
    subprocess.run([sys.executable, __file__, "child"], check=True)
    print("all", version)
"""

WORKERS = """
import sys
import torch
from torch.utils.data import DataLoader, Dataset

class Squares(Dataset):
    def __len__(self):
        return 6
    def __getitem__(self, i):
        return torch.tensor(i * i), type(self).__module__, torch.__version__

if __name__ == "__main__":
    for how in sys.argv[1:]:
        loader = DataLoader(Squares(), 3, num_workers=1, multiprocessing_context=how)
        print(how, [x.tolist() for x, _, _ in loader])
"""


def test_an_installed_distribution_comes_and_goes(tmp_path: Path, run_python) -> None:
    site = tmp_path / "site"
    site.mkdir()
    assert distribution.install(site) == distribution.install(site) == site
    found = distribution.installed(site)
    assert found is not None and found.version == distribution.VERSION
    assert all(file.locate().is_file() for file in found.files or ())
    script = tmp_path / "asks.py"
    script.write_text(ASKED)
    path = os.pathsep.join(filter(None, [str(site), str(Path(tw.__file__).parents[1])]))
    code = "import runpy, sys; sys.argv[0] = sys.argv.pop(); runpy.run_path(sys.argv[0])"
    printed = run_python(code, str(script), env={"PYTHONPATH": path})
    assert printed == f"all {distribution.VERSION}\n"
    assert (site / "torch" / "__pycache__").exists() or sys.dont_write_bytecode
    assert distribution.uninstall(site) == site
    assert not list(site.iterdir()) and distribution.installed(site) is None


def test_what_is_not_ours_stays(tmp_path: Path) -> None:
    with pytest.raises(distribution.Refused, match="no torch"):
        distribution.uninstall(tmp_path)
    info = tmp_path / "torch-2.12.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 2.12.0\n")
    (info / "INSTALLER").write_text("pip\n")
    for refused in (distribution.install, distribution.uninstall):
        with pytest.raises(distribution.Refused, match=r"PyTorch 2\.12\.0"):
            refused(tmp_path)
    (info / "METADATA").unlink()
    (info / "INSTALLER").unlink()
    info.rmdir()
    (tmp_path / "torch").mkdir()
    with pytest.raises(distribution.Refused, match="already"):
        distribution.install(tmp_path)


@pytest.mark.slow
def test_a_program_that_is_run_has_it_in_its_children(tmp_path: Path, run_python) -> None:
    asks, works = tmp_path / "asks.py", tmp_path / "works.py"
    asks.write_text(ASKED)
    works.write_text(WORKERS)
    code = "from tilewright.cli import main; main()"
    assert run_python(code, "run", str(asks)) == f"all {distribution.VERSION}\n"
    assert run_python(code, "run", str(works), "spawn", "forkserver") == (
        "spawn [[0, 1, 4], [9, 16, 25]]\nforkserver [[0, 1, 4], [9, 16, 25]]\n"
    )


VERSIONS = (
    "1.13.1 2.0 2.9.1+cu121 2.13 2.13.0 2.13.0a0 2.13.0.dev20260101 2.13.0rc1 2.13.1 3".split()
)


@pytest.mark.parametrize("other", VERSIONS)
def test_versions_compare_as_versions(other: str) -> None:
    packaging = pytest.importorskip("packaging.version")
    own, theirs = packaging.Version(tw.__version__), packaging.Version(other)
    for operator in ("__lt__", "__le__", "__gt__", "__ge__", "__eq__", "__ne__"):
        wanted = getattr(own, operator)(theirs)
        for form in (other, TorchVersion(other), theirs):
            assert getattr(tw.__version__, operator)(form) == wanted, (operator, form)


def test_a_version_is_a_string_and_compares_with_numbers() -> None:
    version = tw.__version__
    assert isinstance(version, str) and version.split(".")[:2] == ["2", "13"]
    assert version >= (2, 13) and version < (2, 14) and version > "2.9" and version != "2.13"
    assert {version: 1}["2.13.0+tilewright"] == 1
    assert importlib.util.find_spec("tilewright.torch_version") is not None


SHOWN = """
import importlib, inspect, json, pickle, sys
if sys.argv[1] == "ours":
    from tilewright.as_torch.finder import install
    install()
import torch
found, shown, hidden = {}, 0, []
paths = "nn optim optim.lr_scheduler distributions utils.data autograd fx".split()
for path in ("", *paths):
    module = importlib.import_module(f"torch.{path}".rstrip("."))
    for name in dir(module):
        kind = getattr(module, name, None) if not name.startswith("_") else None
        home = getattr(kind, "__module__", None) or ""
        if isinstance(kind, type) and home.partition(".")[0] == "torch":
            found[f"{path}.{name}"] = [home, kind.__qualname__]
            if sys.argv[1] == "ours":
                assert pickle.loads(pickle.dumps(kind)) is kind, kind
                try:
                    shown += f"class {name}" in inspect.getsource(kind)
                except (OSError, TypeError):
                    hidden.append(name)
if sys.argv[1] == "ours":
    assert shown > 230 and not {"Module", "Linear", "Conv2d", "SGD"} & {*hidden}, (shown, hidden)
    layer = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())
    again = pickle.loads(pickle.dumps(layer))
    assert str(type(again[0])) == "<class 'torch.nn.modules.linear.Linear'>"
    assert torch.fx.symbolic_trace(layer).graph.find_nodes(op="call_module", target="0")
    f, x = torch.compile(layer), torch.ones(1, 2)
    assert all((f(x) == layer(x)).all() for _ in range(4))
print("found", json.dumps(found))
"""
MISSED = {
    "DeviceObjType", "Generator", "PyTorchFileReader", "ScriptFunction", "ScriptModule",
    "TensorType", "CompilationUnit", "Future", "TypedStorage", "UntypedStorage", "qscheme",
    "DispatchKey",
}  # fmt: skip
"""Classes that PyTorch's C++ defines, or older names of storages."""


def test_classes_have_pytorchs_names(run_python, torch) -> None:
    printed = [
        run_python(f"import warnings; warnings.simplefilter('ignore')\n{SHOWN}", kind)
        for kind in ("ours", "theirs")
    ]
    ours, theirs = (json.loads(each.split("found ")[1]) for each in printed)
    both = [name for name in ours if name in theirs and name.rpartition(".")[2] not in MISSED]
    assert len(both) > 270
    assert {n: ours[n] for n in both} == {n: theirs[n] for n in both}


HINTS = """
import importlib, sys, typing
if sys.argv[1] == "as torch":
    from tilewright.as_torch.finder import install
    install()
    top = "torch"
else:
    top = "tilewright"
torch = importlib.import_module(top)
unknown = []
for path in ("", *"nn optim optim.lr_scheduler distributions utils.data autograd fx".split()):
    module = importlib.import_module(f"{top}.{path}".rstrip("."))
    for name in dir(module):
        kind = getattr(module, name, None)
        if isinstance(kind, type) and kind.__module__.partition(".")[0] == top:
            try:
                typing.get_type_hints(kind)
            except NameError as error:
                unknown.append(f"{path}.{name}: {error}")
if top == "torch":
    class Net(torch.nn.Module):
        layer: torch.nn.Linear
    hints = typing.get_type_hints(Net)
    assert hints["layer"] is torch.nn.Linear and hints["training"] is bool, hints
print(*sorted(unknown), sep="\\n")
"""


def test_types_of_classes_are_found_under_pytorchs_names(run_python) -> None:
    """A package asks for them, by names that our modules know: where the classes say PyTorch's
    modules, too."""
    plain, renamed = (
        set(
            run_python(f"import warnings; warnings.simplefilter('ignore')\n{HINTS}", kind).split(
                "\n"
            )
        )
        for kind in ("plain", "as torch")
    )
    assert renamed <= plain
