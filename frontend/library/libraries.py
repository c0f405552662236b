"""torch.library.Library: namespaces of operators that are declared by a text and given kernels."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from tilewright.ir.location import at_user_line

from .custom import KERNELS, CustomOpDef, defined, forget
from .schemas import Schema, parsed, written
from .tags import listed

_RESERVED = {"aten", "prim", "prims"}
_WHOLE = {"", "CompositeImplicitAutograd", "Autograd", "AutogradCPU", "AutogradCUDA"}
_ELSEWHERE = {"hip", "hpu", "ipu", "lazy", "maia", "mps", "mtia", "ve", "vulkan", "xla", "xpu"}
"""Devices of PyTorch that no tensor is on here. What is registered for them is never called."""


class Library:
    """Operators of one namespace.

    kind: "DEF" declares them, once for a namespace; "FRAGMENT" declares more; "IMPL" only gives
    kernels. dispatch_key: what the kernels of this library are for, unless `impl` says it.
    """

    def __init__(self, ns: str, kind: str, dispatch_key: str = ""):
        if kind not in ("IMPL", "DEF", "FRAGMENT"):
            raise ValueError(f"Unsupported kind: {kind}")
        if ns in _RESERVED and kind != "IMPL":
            raise ValueError(
                f"{ns} is a reserved namespace. Please try creating a library with another name."
            )
        if kind == "DEF" and ns in _declared:
            raise RuntimeError(
                f"Only a single TORCH_LIBRARY can be used to register the namespace {ns}; please "
                f"put all of your definitions in a single block, or use 'FRAGMENT'{at_user_line()}"
            )
        if kind == "DEF":
            _declared.add(ns)
        self.ns, self.kind, self.dispatch_key = ns, kind, dispatch_key
        self._op_defs: set[str] = set()

    def __repr__(self) -> str:
        return f"Library(kind={self.kind}, ns={self.ns}, dispatch_key={self.dispatch_key})>"

    def define(
        self, schema: str, alias_analysis: str = "", *, tags: Sequence[Any] | Any = ()
    ) -> str:
        """Declare an operator, as `name(Tensor x, int n=1) -> Tensor`; returns its name."""
        if self.kind == "IMPL":
            raise RuntimeError(
                f"define(): Cannot define an operator inside of an IMPL library{at_user_line()}"
            )
        found = parsed(schema)
        declared(f"{self.ns}::{found.name}", found, tags)
        self._op_defs.add(f"{self.ns}::{found.name}")
        return found.name

    def impl(
        self,
        op_name: Any,
        fn: Callable[..., Any] | None = None,
        dispatch_key: str = "",
        *,
        with_keyset: bool = False,
        allow_override: bool = False,
    ) -> Any:
        """Give an operator of the namespace a kernel, for a device ("CPU", "CUDA"), for shapes
        alone ("Meta"), or as a function of other operators (CompositeImplicitAutograd), through
        which its derivative goes. A decorator without `fn`."""
        if fn is None:
            return lambda function: self.impl(op_name, function, dispatch_key) or function
        name = op_name if isinstance(op_name, str) else op_name._qualname
        name = name.rpartition("::")[2].removesuffix(".default")
        if self.ns in _RESERVED:
            raise NotImplementedError(
                f"{self.ns}::{name}: PyTorch's own operators can't be given other kernels, as "
                f"tilewright writes them itself. Define an operator of your own{at_user_line()}"
            )
        given(f"{self.ns}::{name}", dispatch_key or self.dispatch_key, fn)
        return None

    def fallback(self, fn: Callable[..., Any], dispatch_key: str = "", **_: Any) -> NoReturn:
        """Refused: there is no dispatcher that calls could fall through."""
        raise NotImplementedError(
            "Library.fallback: tilewright has no dispatcher, so operators without a kernel can't "
            f"fall back to a common one{at_user_line()}"
        )

    def _destroy(self) -> None:
        """Forget the operators that this library declared."""
        for name in self._op_defs:
            forget(name)
        self._op_defs.clear()
        if self.kind == "DEF":
            _declared.discard(self.ns)


_declared: set[str] = set()  # the namespaces with a library of kind DEF


class _scoped(Library):
    """A library for a `with` block: its operators are forgotten at the end."""

    def __enter__(self) -> Library:
        return self

    def __exit__(self, *exc: object) -> None:
        self._destroy()


def _scoped_library(*args: Any, **options: Any) -> _scoped:
    return _scoped(*args, **options)


def declared(name: str, schema: Schema, tags: Any = ()) -> CustomOpDef:
    """An operator that has no kernel yet. RuntimeError if there is one of this name."""
    if defined(name) is not None:
        raise RuntimeError(
            f"Tried to register an operator ({schema.text}) with the same name and overload name "
            f"multiple times{at_user_line()}"
        )

    def without_kernel(*args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError(f"Could not run '{name}': it has no kernel{at_user_line()}")

    op = CustomOpDef(name, without_kernel, schema.mutated, schema=schema)
    op._kernels.clear()
    op._may_alias, op.tags = True, listed(tags)
    for key, function in _early.pop(name, ()):
        _take(op, key, function)
    return op


_early: dict[str, list[tuple[str, Callable[..., Any]]]] = {}
"""Kernels of operators that aren't declared yet, by their names: packages load files of kernels
before the file of declarations."""


def given(name: str, key: str, function: Callable[..., Any]) -> None:
    """Give an operator, declared now or later, a kernel for one of PyTorch's dispatch keys."""
    if key.lower() in _ELSEWHERE:
        return
    if not (key in KERNELS or key in _WHOLE or key == "Meta" or key.startswith("Autocast")):
        raise NotImplementedError(
            f"impl(): a kernel for {key!r}: tilewright knows {', '.join(sorted(KERNELS))}, Meta, "
            f"{', '.join(sorted(filter(None, _WHOLE)))}{at_user_line()}"
        )
    op = defined(name)
    if op is None:
        _early.setdefault(name, []).append((key, function))
    else:
        _take(op, key, function)


def _take(op: CustomOpDef, key: str, function: Callable[..., Any]) -> None:
    if key in KERNELS:
        op._on_arrays = True
        op.register_kernel(key, function)
    elif key in _WHOLE:
        op._whole = function
    elif key == "Meta":
        op.register_fake(function)
    else:
        op._casting[key.removeprefix("Autocast").lower()] = function


def define(qualname: str, schema: str, *, lib: Library | None = None, tags: Any = ()) -> Any:
    """Declare the operator `namespace::name` with the schema "(Tensor x) -> Tensor"."""
    if not isinstance(qualname, str):
        raise ValueError(
            f"define(qualname, schema): expected qualname to be instance of str, got "
            f"{type(qualname).__name__}"
        )
    _, _, name = qualname.partition("::")
    found = parsed(name + schema)
    declared(qualname, found, tags)
    if lib is not None:
        lib._op_defs.add(qualname)


def impl(
    qualname: str,
    types: str | Sequence[str],
    func: Callable[..., Any] | None = None,
    *,
    lib: Library | None = None,
) -> Any:
    """Give an operator, declared now or later, a kernel for kinds of devices ("cpu", "cuda",
    "default" for all). A decorator without `func`."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        for kind in (types,) if isinstance(types, str) else types:
            given(qualname, {"cpu": "CPU", "cuda": "CUDA"}.get(kind, kind), function)
        return function

    if func is None:
        return register
    register(func)
    return None


class _Kernel:
    """What computes an operator on a kind of devices."""

    def __init__(self, function: Callable[..., Any]):
        self._function = function

    def call_boxed(self, keyset: Any, *args: Any, **kwargs: Any) -> Any:
        """Call it. keyset: PyTorch's dispatch keys, which say nothing here."""
        return self._function(*args, **kwargs)


def get_kernel(op: Any, dispatch_key: Any) -> _Kernel:
    """What computes an operator on "CPU" or "CUDA", for a kernel that calls the one before it.

    op: a full name with or without a form ("aten::add.Tensor"), or the operator. RuntimeError if
    there is no such operator.
    """
    key = dispatch_key if isinstance(dispatch_key, str) else dispatch_key.name
    if key not in KERNELS and key not in _WHOLE:
        raise ValueError(f"get_kernel: there is no dispatch key {dispatch_key!r}{at_user_line()}")
    name = op if isinstance(op, str) else getattr(op, "_qualname", None) or op.name()
    space, _, form = name.partition("::")
    found: Any = op if isinstance(op, CustomOpDef) else defined(f"{space}::{form.split('.')[0]}")
    if space == "aten":
        operators = importlib.import_module("..dispatching.operators", __package__)
        found = operators.of_aten(form.split(".")[0])
    if found is None:
        raise RuntimeError(f"get_kernel: there is no operator {name}{at_user_line()}")
    own = found._kernels.get(KERNELS.get(key)) if isinstance(found, CustomOpDef) else None
    return _Kernel(own or found)


def infer_schema(
    prototype_function: Callable[..., Any],
    /,
    *,
    mutates_args: Any,
    op_name: str | None = None,
    tags: Any = (),
) -> str:
    """The schema of a function by its annotations."""
    return written(prototype_function, mutates_args, op_name)


def fallthrough_kernel(*args: Any, **kwargs: Any) -> NoReturn:
    """A mark for `impl`, which here has nothing to fall through to."""
    raise NotImplementedError("fallthrough_kernel() should never be called.")
