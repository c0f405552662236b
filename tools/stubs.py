"""Write what editors and type checkers are to know of the names that are made while importing.

    python tools/stubs.py            write frontend/_names.pyi and frontend/_methods.pyi
    python tools/stubs.py --check    exit with 1 if they aren't what this would write

The declarations of ops (frontend/functions/call.py) say which functions and methods there are. What
these take and return is written beside each function, in its annotations and overloads.
"""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import tilewright
from tilewright import _tensor, publish
from tilewright.functions.call import DECLARED
from tilewright.functions.typed import tensortype
from tilewright.overriding import plain

for _module in publish.LATER:  # so that its ops are declared too
    importlib.import_module(f"tilewright.{_module}")

ROOT = Path(__file__).resolve().parents[1]
FRONTEND = ROOT / "frontend"
NAMES, METHODS = FRONTEND / "_names.pyi", FRONTEND / "_methods.pyi"
WRITTEN = "Written by tools/stubs.py from the declarations of ops."

# Where the names in annotations come from.
SOURCES = {
    "Any": "typing",
    "Bounds": ".return_types",
    "Callable": "collections.abc",
    "DType": "tilewright.ir.dtype",
    "DeviceLike": ".types",
    "Dim": ".functions.reduction",
    "Generator": ".functions.generator",
    "Histogram": ".return_types",
    "HistogramDD": ".return_types",
    "Indexed": ".return_types",
    "Parts": ".return_types",
    "PLU": ".return_types",
    "QR": ".return_types",
    "Reflectors": ".return_types",
    "SignedLog": ".return_types",
    "Substituted": ".return_types",
    "TurnedSVD": ".return_types",
    "TypedStorage": ".exchange.storages",
    "UntypedStorage": ".exchange.storages",
    "Literal": "typing",
    "NoReturn": "typing",
    "Number": ".types",
    "Self": "typing_extensions",
    "Sequence": "collections.abc",
    "Tensor": "._tensor",
    "overload": "typing",
}
HIDDEN = ("bool", "float", "int")  # dtypes of torch have these names, and methods of tensors
BUILTINS = "".join(f"from builtins import {name} as _{name}\n" for name in HIDDEN)
OF_OBJECT = ("__eq__", "__ne__")  # any object has these, with another result

Forms = list[ast.FunctionDef]


@functools.cache
def _functions_in(path: str) -> Forms:
    tree = ast.parse(Path(path).read_text(encoding="utf-8"))
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]


def forms(function: Callable[..., Any]) -> Forms:
    """The overloads of a function, or the function itself, as its source has them."""
    code = plain(inspect.unwrap(function)).__code__
    there = [node for node in _functions_in(code.co_filename) if node.name == code.co_name]
    overloads = [n for n in there if any(ast.unparse(d) == "overload" for d in n.decorator_list)]
    if overloads:
        return overloads
    (own,) = (
        node
        for node in there
        if code.co_firstlineno in (node.lineno, *(d.lineno for d in node.decorator_list))
    )
    return [own]


def line(name: str, node: ast.FunctionDef, first: str, in_place: bool = False) -> str:
    """A line that declares a form of a method, or of the function that is one.

    first: what its tensor is called. `out`, and the names that NumPy has for options, are left out.
    """
    own = node.args
    keywords = [
        (arg, default)
        for arg, default in zip(own.kwonlyargs, own.kw_defaults, strict=True)
        if arg.arg != "out"
    ]
    positional = [*own.posonlyargs, *own.args][1:]
    alone = len(own.posonlyargs) > 1  # whether `/` stands behind
    args = ast.arguments(
        posonlyargs=[ast.arg(first), *positional] if alone else [],
        args=[] if alone else [ast.arg(first), *positional],
        vararg=own.vararg,
        kwonlyargs=[arg for arg, _ in keywords],
        kw_defaults=[default for _, default in keywords],
        kwarg=None,
        defaults=own.defaults[-len(positional) :] if positional else [],
    )
    result = "Self" if in_place else ast.unparse(node.returns or ast.Name("Any"))
    if first != "self" and result == "Self":
        result = "Tensor"
    return f"def {name}({ast.unparse(args)}) -> {result}: ..."


def overloaded(lines: Iterable[str]) -> list[str]:
    found = list(lines)
    return [f"@overload\n{text}" for text in found] if len(found) > 1 else found


def methods() -> Iterator[tuple[str, list[str]]]:
    """The methods that the declarations give to Tensor, and their lines."""
    for op in DECLARED.values():
        if op.method is not None:
            found = forms(op.method)
            for name in (op.name, *op.aliases):
                yield name, [line(name, node, "self") for node in found]
                if op.in_place is not None:
                    yield name + "_", [line(name + "_", node, "self", True) for node in found]
        for name, method in (op.operators or {}).items():
            yield name, [line(name, node, "self", _is_in_place(name)) for node in forms(method)]


def _is_in_place(operator: str) -> bool:
    return operator.startswith("__i") and operator != "__invert__"


def methods_stub() -> str:
    own = {node.name for node in _functions_in(_tensor.__file__)}
    found = {name: lines for name, lines in methods() if name not in own}
    body = ""
    for name, lines in sorted(found.items()):
        for text in overloaded(lines):
            text = _unhidden(text)
            ignored = "  # type: ignore[override]" if name in OF_OBJECT else ""
            body += text.replace("\n", "\n    ").join(("    ", f"{ignored}\n"))
    return (
        f'"""The methods that ops give to Tensor.\n\n{WRITTEN}\n"""\n\n{_imports(body)}{BUILTINS}'
        "from .recording import Handle\n\nclass Methods(Handle):\n"
        "    # Of a Handle any attribute may be asked.\n"
        f"    __getattr__: None  # type: ignore\n{body}"
    )


def _unhidden(text: str) -> str:
    """A declaration with other names for the types that names of torch hide."""
    head, sign, rest = text.partition("(")
    return head + sign + re.sub(rf"\b({'|'.join(HIDDEN)})\b", r"_\1", rest)


def _passed_on(home: str, own: str, name: str) -> str:
    """A stub passes an import on only under its own name."""
    if own == name:
        return f"from {home} import {name} as {name}\n"
    return f"from {home} import {own} as _is_{name}\n{name} = _is_{name}\n"


def _imported_by(path: str) -> Iterator[str]:
    """The names that a module imports, as a stub passes them on."""
    for node in ast.parse(Path(path).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom):
            home = "." * node.level + (node.module or "")
            for alias in node.names:
                name = alias.asname or alias.name
                if name in tilewright.__all__:
                    yield _passed_on(home, alias.name, name)


def names_stub() -> str:
    """torch.x, imported from where it is made if there it is a name, and the public modules."""
    imports, lines = [], []
    for name in sorted(publish.MODULES):
        if not name.startswith("_") and any(FRONTEND.glob(f"{name}*")):
            imports.append(f"from . import {name} as {name}\n")
    for name, module in tilewright._LAZY.items():
        if isinstance(getattr(tilewright, name), tensortype):
            lines.append(f"{name}: type[Tensor]")
        else:
            imports.append(f"from .{module} import {name} as {name}\n")
    imports += _imported_by(tilewright.__file__)
    for name, function in sorted(_functions().items()):
        function = publish.COPIES.get(function, function)
        home = _homes().get(id(function))
        if home is not None:
            imports.append(_passed_on(*home, name))
        else:
            method = function
            for op in DECLARED.values():
                if function is op.in_place_function:
                    method = op.method
            lines += overloaded(line(name, node, "input: Tensor") for node in forms(method))
    found = "".join(imports).splitlines()
    imports = [text for text in found if text.startswith("from ")]
    lines += [text for text in found if not text.startswith("from ")]
    body = "\n".join(_unhidden(text) for text in lines)
    imported = {text.rsplit(maxsplit=1)[-1] for text in imports}
    return (
        f'"""The names of torch that ops give, and those that are imported when asked for.\n\n'
        f'{WRITTEN}\n"""\n\n' + "\n".join([*imports, _imports(body, imported) + BUILTINS, body, ""])
    )


def _functions() -> dict[str, Callable[..., Any]]:
    """torch.x of all ops, also of those that are declared when they are first asked for."""
    return {name: getattr(tilewright, name) for name in (*publish.__all__, *publish.LATE)}


@functools.cache
def _homes() -> dict[int, tuple[str, str]]:
    """Module and name of every function that is a name of a module of ours."""
    found: dict[int, tuple[str, str]] = {}
    for module in {*_declaring()}:
        for name, value in vars(sys.modules[f"tilewright.{module}"]).items():
            if name.startswith("_") or not callable(value):
                continue
            if name in _assigned(module) or value.__module__ == f"tilewright.{module}":
                found.setdefault(id(value), (f".{module}", name))
    return found


@functools.cache
def _assigned(module: str) -> set[str]:
    """The names that a module's text assigns."""
    tree = ast.parse(Path(sys.modules[f"tilewright.{module}"].__file__ or "").read_text("utf-8"))
    targets = (node.targets for node in tree.body if isinstance(node, ast.Assign))
    names = (ast.walk(target) for line in targets for target in line)
    return {node.id for walk in names for node in walk if isinstance(node, ast.Name)}


def _declaring() -> Iterator[str]:
    """The modules that declare ops."""
    for name in sys.modules:
        own = name.removeprefix("tilewright.")
        if own.startswith(("functions.", "nn.functional.")) or own in publish.LATER:
            yield own


def _imports(body: str, there: Iterable[str] = ()) -> str:
    """The imports that the annotations in `body` need, beside those that are there."""
    used = {*re.findall(r"\w+", body)} - {*there}
    return "".join(f"from {SOURCES[name]} import {name}\n" for name in sorted(used & {*SOURCES}))


def formatted(text: str) -> str:
    """`text` as ruff writes it; SystemExit names what the text doesn't define."""
    name = ["--stdin-filename", str(FRONTEND / "_stub.pyi"), "-"]
    for command in (["check", "--select", "I,F821", "--fix", *name], ["format", *name]):
        ruff = [sys.executable, "-m", "ruff", *command]
        done = subprocess.run(ruff, input=text, text=True, capture_output=True)
        if done.returncode:
            raise SystemExit(f"a stub is wrong; is a name missing in SOURCES?\n{done.stderr}")
        text = done.stdout
    return text


def stale() -> dict[Path, str]:
    """The files that aren't what they should be, with what they should be."""
    wanted = {NAMES: formatted(names_stub()), METHODS: formatted(methods_stub())}
    return {
        path: text
        for path, text in wanted.items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    }


def main() -> int:
    found = stale()
    if "--check" in sys.argv:
        for path in found:
            print(f"{path.relative_to(ROOT)} is not what tools/stubs.py writes: run it")
        return bool(found)
    for path, text in found.items():
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
