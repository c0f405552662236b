"""torch.package beside PyTorch: rules, errors, modules of archives, and archives of each other."""

from __future__ import annotations

import importlib
import importlib.resources
import io
import pickle
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tilewright as tw

pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore:TypedStorage is deprecated:UserWarning"),
    pytest.mark.filterwarnings("ignore:(read|open)_text is deprecated:DeprecationWarning"),
]

SOURCES = {
    "parcel/__init__.py": "",
    "parcel/parts.py": "K = 3\nclass Part:\n    pass\n",
    "parcel/whole.py": (
        "from . import parts\n"
        "from .parts import Part\n"
        "import os.path\n"
        "class Whole:\n"
        "    class Inner:\n"
        "        pass\n"
        "    def __init__(self, weight):\n"
        "        self.weight, self.inner, self.part = weight, Whole.Inner(), Part()\n"
        "    def twice(self):\n"
        "        return self.weight * 2 + parts.K\n"
        "class Told:\n"
        "    def __init__(self, weight, where):\n"
        "        self.weight, self.where = weight, where\n"
        "    def __reduce_package__(self, exporter):\n"
        "        name = f'told{exporter.get_unique_id()}.pkl'\n"
        "        exporter.save_pickle('made', name, self.weight)\n"
        "        return told, (name,)\n"
        "def told(importer, name):\n"
        "    return Told(importer.load_pickle('made', name), name)\n"
    ),
}


@pytest.fixture
def parcel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A package of modules that can be imported."""
    for name, text in SOURCES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("parcel.whole")
    for name in [n for n in sys.modules if n.partition(".")[0] == "parcel"]:
        del sys.modules[name]


def package_of(m: Any) -> Any:
    return importlib.import_module(f"{m.__name__}.package")


def archive(m: Any, whole: Any) -> io.BytesIO:
    file = io.BytesIO()
    with package_of(m).PackageExporter(file) as exporter:
        exporter.intern("parcel.**")
        weight = m.arange(6.0).reshape(2, 3)
        exporter.save_pickle("model", "whole.pkl", whole.Whole(weight))
        exporter.save_pickle("model", "views.pkl", [weight[1], weight, m.nn.Linear(3, 2).eval()])
        told = whole.Told(weight.bfloat16(), "here")
        exporter.save_pickle("model", "told.pkl", [told, told])
        exporter.save_text("notes", "a.txt", "äbc")
        exporter.save_binary("notes.more", "b.bin", b"\0\1")
        exporter.save_source_string(
            "entry",
            "import torch_package_importer as here\n"
            "from parcel.whole import *\nfrom parcel import parts as p\nimport os.path as path\n"
            "inside = '__torch_package__' in dir()\nK = p.K\n",
            dependencies=False,
        )
    file.seek(0)
    return file


def facts(m: Any, file: io.BytesIO) -> Any:
    package = package_of(m)
    importer = package.PackageImporter(file)
    whole = importer.load_pickle("model", "whole.pkl")
    row, matrix, linear = importer.load_pickle("model", "views.pkl")
    matrix[1, 0] = 10
    told, again = importer.load_pickle("model", "told.pkl")
    entry = importer.import_module("entry")
    name = importer.id()
    kind = type(whole)
    return (
        whole.twice().tolist(), package.is_from_package(whole), package.is_from_package(entry),
        package.is_from_package(3), kind.__module__.replace(name, "ID"), kind.__qualname__,
        kind is importer.import_module("parcel.whole").Whole, type(whole.inner).__qualname__,
        row.tolist(), str(row.dtype), linear.training, type(linear).__name__,
        linear(matrix).shape, told is again, str(told.weight.dtype), told.where,
        importer.load_text("notes", "a.txt"), importer.load_binary("notes.more", "b.bin"),
        entry.K, entry.inside, entry.here is importer, entry.path.join("a", "b"),
        entry.Whole is kind, entry.__name__.replace(name, "ID"), "parcel" in sys.modules,
        importer.get_source("parcel.parts"),
        str(importer.file_structure(include=["**/*.py", "**/*.txt"], exclude="**/whole.py")),
        importer.file_structure().has_file("parcel/parts.py"),
        importer.file_structure().has_file("parcel/none.py"),
        importer.python_version() == ".".join(map(str, sys.version_info[:3])),
        importer.whichmodule(kind, "Whole").replace(name, "ID"), importer.get_name(kind),
    )  # fmt: skip


def test_archives_of_each_other(torch: Any, parcel: Any) -> None:
    files = {m: archive(m, parcel) for m in (tw, torch)}
    found = []
    for writer in files:
        for reader in files:
            files[writer].seek(0)
            found.append(facts(reader, files[writer]))
    assert found[0] == found[1] == found[2] == found[3]


def test_what_is_in_them(torch: Any, parcel: Any) -> None:
    def names(m: Any) -> set[str]:
        with zipfile.ZipFile(archive(m, parcel)) as file:
            return set(file.namelist()) - {"archive/.data/serialization_id"}

    assert names(tw) == names(torch)


def lists(m: Any, whole: Any) -> Any:
    """What the rules do with modules."""
    package, seen = package_of(m), []
    file = io.BytesIO()
    with package.PackageExporter(file) as exporter:
        exporter.mock("parcel.parts")
        exporter.intern(["parcel.**", "none"], exclude="parcel.x")
        for kind in ("mock", "intern", "extern"):
            hook = getattr(exporter, f"register_{kind}_hook")
            hook(lambda e, n, kind=kind: seen.append((kind, n)))
        exporter.save_source_string(
            "entry", "import os\nfrom parcel import whole, parts\nif not os:\n  import none\n"
        )
        found = [
            exporter.interned_modules(), exporter.externed_modules(), exporter.mocked_modules(),
            exporter.denied_modules(), sorted(exporter.get_rdeps("parcel.parts")),
            exporter.get_rdeps("nobody"), exporter.dependency_graph_string(),
            exporter.get_unique_id(), exporter.get_unique_id(),
        ]  # fmt: skip
    file.seek(0)
    entry = package.PackageImporter(file).import_module("entry")
    mocked = entry.parts.K
    errors = []

    def derive() -> None:
        class Derived(mocked):  # type: ignore[misc, valid-type]
            pass

    for use in (lambda: mocked(), lambda: mocked + 1, lambda: mocked.x[0], derive):
        with pytest.raises(NotImplementedError, match="was mocked out during packaging"):
            use()
        errors.append(True)
    return found, sorted(seen), errors


def test_rules(torch: Any, parcel: Any) -> None:
    mine, theirs = lists(tw, parcel), lists(torch, parcel)
    assert mine == theirs


def failures(m: Any, whole: Any) -> list[Any]:
    package = package_of(m)
    said: list[Any] = []

    def attempt(call: Any, **options: Any) -> None:
        try:
            with package.PackageExporter(io.BytesIO(), **options) as exporter:
                call(exporter)
        except Exception as error:
            said.append((type(error).__name__, str(error)))
        else:
            said.append(None)

    thing = whole.Whole(m.ones(2))
    attempt(lambda e: e.save_pickle("p", "a.pkl", thing))
    attempt(
        lambda e: (e.deny("parcel.parts"), e.intern("**"), e.save_module("parcel.whole")),
        debug=True,
    )
    attempt(lambda e: (e.mock("parcel.**"), e.save_pickle("p", "a.pkl", thing.part)))
    attempt(lambda e: e.intern("none.**", allow_empty=False))
    attempt(lambda e: e.extern("none.**", allow_empty=False))
    attempt(lambda e: e.save_module(sys))
    attempt(lambda e: (e.intern("**"), e.save_module("no_such_module")))
    attempt(lambda e: e.save_source_string("a", "import ("))
    attempt(lambda e: (e.intern("**"), e.save_module("numpy.core._multiarray_umath")))
    for pattern in ("a**b", "***"):
        attempt(lambda e, pattern=pattern: e.intern(pattern))
    return said


@pytest.mark.filterwarnings("ignore")
def test_errors(torch: Any, parcel: Any) -> None:
    mine, theirs = failures(tw, parcel), failures(torch, parcel)
    for a, b in zip(mine, theirs, strict=True):
        assert (a and a[0]) == (b and b[0])
    assert [mine[i] for i in (0, 1, 2)] == [theirs[i] for i in (0, 1, 2)]


def test_errors_of_reading(torch: Any, parcel: Any) -> None:
    for m in (torch, tw):
        package, file = package_of(m), archive(tw, parcel)
        importer = package.PackageImporter(file)
        with pytest.raises(ModuleNotFoundError, match='No module named "none" in self-contained'):
            importer.import_module("none")
        whole = importer.load_pickle("model", "whole.pkl")

        with pytest.raises(pickle.PicklingError), package.PackageExporter(io.BytesIO()) as exporter:
            exporter.save_pickle("p", "a.pkl", whole)
        file.seek(0)
        with pytest.raises(ImportError, match="has been disallowed"):
            package.PackageImporter(file, lambda name: name != "torch")


def test_an_object_of_an_archive_in_another(torch: Any, parcel: Any) -> None:
    for m in (torch, tw):
        package = package_of(m)
        first = package.PackageImporter(archive(m, parcel))
        file = io.BytesIO()
        with package.PackageExporter(file, importer=(first, package.sys_importer)) as exporter:
            exporter.intern("parcel.**")
            exporter.save_pickle("p", "a.pkl", first.load_pickle("model", "whole.pkl"))
            exporter.save_source_file("extra", str(Path(parcel.__file__).parent))
        file.seek(0)
        second = package.PackageImporter(file)
        whole = second.load_pickle("p", "a.pkl")
        assert whole.twice().tolist() == [[3, 5, 7], [9, 11, 13]]
        assert type(whole).__module__ == f"{second.id()}.parcel.whole"
        assert second.import_module("extra.parts").K == 3


def test_files_and_folders(torch: Any, parcel: Any, tmp_path: Path) -> None:
    path = tmp_path / "saved.pt"
    with tw.package.PackageExporter(path) as exporter:
        exporter.save_source_string("res", "", is_package=True)
        exporter.save_text("res", "a.txt", "abc")
        exporter.save_pickle("res", "t.pkl", tw.ones(2))
    for m in (torch, tw):
        importer = package_of(m).PackageImporter(str(path))
        assert importer.load_pickle("res", "t.pkl", map_location="cpu").tolist() == [1, 1]
        module = importer.import_module("res")
        assert importlib.resources.read_text(module, "a.txt") == "abc"
        assert "saved.pt" in str(importer.file_structure())
    with zipfile.ZipFile(path) as file:
        file.extractall(tmp_path)
    assert tw.package.PackageImporter(tmp_path / "saved").load_text("res", "a.txt") == "abc"


@pytest.mark.parametrize(
    ("include", "exclude"),
    [
        ("a.*", ()),
        ("a.**", ()),
        ("**", "a.b"),
        ("a*.b", ()),
        (["a", "b.**.c"], ()),
        ("**.b.**", ()),
    ],
)
def test_patterns(torch: Any, include: Any, exclude: Any) -> None:
    names = "a b a.b a.b.c ab.b b.c b.x.c b.x.y.c a.b.d c.b".split()
    mine, theirs = (package_of(m).GlobGroup(include, exclude=exclude) for m in (tw, torch))
    assert [mine.matches(n) for n in names] == [theirs.matches(n) for n in names]
    assert str(mine) == str(theirs)


def test_analysis(torch: Any, parcel: Any) -> None:
    def run(m: Any) -> Any:
        package = package_of(m)
        analyze = importlib.import_module(f"{m.__name__}.package.analyze")
        found = importlib.import_module(f"{m.__name__}.package.find_file_dependencies")
        exporter = package.PackageExporter(io.BytesIO())
        exporter.deny("parcel.parts")
        exporter.intern("**")
        exporter.save_pickle("p", "a.pkl", parcel.Whole(1))
        with pytest.raises(package.PackagingError) as raised:
            exporter.close()
        source = "import a.b, c as d\nfrom .x import y, z\nfrom .. import w\nfrom q import *\n"
        return (
            analyze.find_first_use_of_broken_modules(raised.value),
            "parcel.whole" in analyze.trace_dependencies(parcel.Whole, [(1,)]),
            sorted(found.find_files_source_depends_on(source, "one.two"), key=str),
        )

    assert run(tw) == run(torch)
