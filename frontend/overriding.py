"""The protocol `__torch_function__`: classes and modes that decide what a public function gives.

A program that has neither pays nothing. The first object of a class with a `__torch_function__`, or
the first mode, makes all public functions ask (`watch`): the code of each is replaced by that of
`_asking`, so every reference to a function, wherever it was taken, is still that function.
"""

from __future__ import annotations

import builtins
import functools
import importlib
import inspect
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import CodeType, FunctionType
from typing import Any

from tilewright.ir.location import at_user_line

from .recording import Handle

_TOP = __package__
Function = Callable[..., Any]

SPACES = {
    "torch": "",
    "torch.nn.functional": "nn.functional",
    "torch.linalg": "linalg",
    "torch.fft": "fft",
    "torch.special": "special",
    "torch.signal.windows": "signal.windows",
    "torch.nn.init": "nn.init",
}
"""PyTorch's modules whose functions take tensors, and ours."""

SILENT = frozenset(
    "as_subclass compile explain fork from_dlpack from_numpy frombuffer get_device_module "
    "is_storage is_tensor load save seed tune typename vmap wait is_grad_enabled".split()
)
"""Functions that ask nobody."""

MAKERS = frozenset(
    "arange as_tensor asarray empty empty_permuted empty_strided eye full linspace logspace ones "
    "rand randint randn randperm scalar_tensor tensor zeros".split()
)
"""Functions that ask modes alone."""


SPREADING = frozenset({"einsum"})
"""Functions that ask with each tensor as an argument, also where a list of them was given."""


class _State(threading.local):
    modes: list[Any]
    dispatching: list[Any]  # the modes of `dispatching/`
    classes = True  # whether classes are asked
    skips = False  # whether the next call asks nobody

    def __init__(self) -> None:
        self.modes, self.dispatching = [], []


state = _State()


def disabled(func: Function, types: Any, args: Any = (), kwargs: Any = None) -> Any:
    """The `__torch_function__` of a class that wants none: no class is asked within the call."""
    with without_classes():
        return func(*args, **(kwargs or {}))


class without_classes:
    """A block in which no class is asked; modes still are."""

    def __enter__(self) -> None:
        self._before, state.classes = state.classes, False

    def __exit__(self, *exc: object) -> None:
        state.classes = self._before


class without_any(without_classes):
    """A block in which nobody is asked."""

    def __enter__(self) -> None:
        super().__enter__()
        self._modes, state.modes = state.modes, []

    def __exit__(self, *exc: object) -> None:
        super().__exit__(*exc)
        state.modes = self._modes


def has_override(value: Any) -> bool:
    """Whether a value's class has a `__torch_function__` of its own, or one from a subclass of
    Tensor."""
    kind = type(value)
    own = getattr(kind, "__torch_function__", None)
    return own is not None and own is not disabled and kind.__module__ not in _PLAIN_TENSORS


_TENSOR = f"{_TOP}._tensor"
_PLAIN_TENSORS = {_TENSOR, "torch", "torch.nn.parameter"}  # PyTorch's too, where it is loaded
_PLAIN: set[type] = {int, float, bool, str, type(None)}  # classes whose values have no say


def overriding(values: Iterable[Any]) -> list[Any]:
    """The values that have a say, one of each class: subclasses first, then from the left."""
    return first_of_each(filter(has_override, values))


def first_of_each(values: Iterable[Any]) -> list[Any]:
    """One value of each class: subclasses first, then from the left."""
    found: list[Any] = []
    for value in values:
        if any(type(value) is type(other) for other in found):
            continue
        places = [i for i, other in enumerate(found) if issubclass(type(value), type(other))]
        found.insert(places[0] if places else len(found), value)
    return found


def arguments(args: Sequence[Any], kwargs: dict[str, Any]) -> Iterator[Any]:
    """The arguments that may have a say, those in lists too."""
    for value in (*args, *kwargs.values()) if kwargs else args:
        kind = value.__class__
        if kind in _PLAIN:
            continue
        if kind is list or kind is tuple:
            yield from (each for each in value if each.__class__ not in _PLAIN)
        else:
            yield value


def ask(func: Function, found: Sequence[Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """What the innermost mode gives for a call, or the first of the values in `found`.

    TypeError if nobody answers.
    """
    result = _answer(func, found, args, kwargs)
    if result is not NotImplemented:
        return result
    asked = [f"mode object {state.modes[-1]!r}"] if state.modes else []
    asked += [f"class {type(value)}" for value in found]
    raise TypeError(
        f"Multiple dispatch failed for '{shown(func)}'; all __torch_function__ handlers returned "
        f"NotImplemented: {', '.join(asked)}{at_user_line()}"
    )


def _answer(
    func: Function, found: Sequence[Any], args: Sequence[Any], kwargs: dict[str, Any]
) -> Any:
    """As `ask`. NotImplemented passes the question on, and is what nobody's answer gives."""
    types = tuple(map(type, found))
    modes = state.modes
    if modes:
        *state.modes, mode = modes
        try:
            result = mode.__torch_function__(func, types, args, kwargs)
        finally:
            state.modes = modes
        if result is not NotImplemented:
            return result
    for value in found if state.classes else ():
        result = value.__torch_function__(func, types, args, kwargs)
        if result is not NotImplemented:
            return result
    return NotImplemented


@functools.cache
def names() -> dict[Any, str]:
    """The full names of what asks: functions, methods and properties."""
    found: dict[Any, str] = {}
    for full, function in public_functions():
        if function not in found or full.endswith(f".{function.__name__}"):
            found.setdefault(function, full)
    for name, value in vars(importlib.import_module(_TENSOR).Tensor).items():
        if isinstance(value, property):
            for way in ("__get__", "__set__", "__delete__"):
                found[getattr(value, way)] = f"torch.Tensor.{name}.{way}"
        elif isinstance(value, FunctionType):
            found.setdefault(value, f"torch.Tensor.{name}")
    return found


def shown(func: Any) -> str:
    """The public name of what asks, such as `torch.add`."""
    return names().get(func) or f"{func.__module__}.{func.__name__}".replace(_TOP, "torch", 1)


AS_GIVEN = frozenset(
    "adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d avg_pool1d avg_pool2d avg_pool3d "
    "bilinear celu_ channel_shuffle conv1d conv2d conv3d conv_tbc conv_transpose1d "
    "conv_transpose2d conv_transpose3d cosine_similarity elu_ gelu hardshrink hardtanh_ "
    "leaky_relu_ linear log_softmax logsigmoid native_channel_shuffle one_hot pairwise_distance "
    "pdist pixel_shuffle pixel_unshuffle prelu relu_ rrelu_ scaled_dot_product_attention selu_ "
    "sigmoid softmax softplus softshrink softsign tanh tanhshrink threshold_".split()
)
"""Functions of torch.nn.functional that PyTorch has from its compiled part, or from there too, and
those that have options with us alone."""

Call = tuple[tuple[Any, ...], dict[str, Any]]


def _in_full(signature: inspect.Signature) -> Callable[[Sequence[Any], dict[str, Any]], Call]:
    """The form in which PyTorch's functions in Python ask: all arguments with a default are
    keywords, those that weren't given too."""
    own = signature.parameters.values()
    first = [p.name for p in own if p.default is p.empty]
    others = {p.name: p.default for p in own if p.default is not p.empty}

    def form(args: Sequence[Any], kwargs: dict[str, Any]) -> Call:
        try:
            given = signature.bind(*args, **kwargs).arguments
        except TypeError:  # the function itself refuses them
            return tuple(args), kwargs
        return tuple(given[name] for name in first), others | {
            name: value for name, value in given.items() if name in others
        }

    return form


def _as_given(args: Sequence[Any], kwargs: dict[str, Any]) -> Call:
    return tuple(args), kwargs


_ARITHMETIC = "add and floordiv lshift matmul mod mul or pow rshift sub truediv xor".split()
_BINARY = frozenset(
    [f"__{side}{name}__" for name in _ARITHMETIC for side in ("", "r", "i")]
    + [f"__{name}__" for name in "eq ne lt le gt ge".split()]
)
"""Operators. Where nobody answers for the left operand, Python asks the right one."""


def _dispatch(
    func: Function, own: Function, makes: bool, form: Any = _as_given, is_operator: bool = False
) -> Function:
    """The call of `func` with whoever has a say. own: what computes it. form: the form of the
    arguments in the question."""

    spreads = func.__name__ in SPREADING

    def below(args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        if _below is None:
            return own(*args, **kwargs)
        return _below(func, own, args, kwargs)

    def dispatch(args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        modes, classes = state.modes, state.classes
        if state.skips:
            state.skips = False
            if form is not _as_given:  # PyTorch's is written in Python, and what it calls does ask
                return own(*args, **kwargs)
            with without_any():
                return own(*args, **kwargs)
        if not modes and (not classes or (not kwargs and _PLAIN.issuperset(map(type, args)))):
            return below(args, kwargs)
        if makes and not modes:
            with without_classes():
                return below(args, kwargs)
        found = overriding(arguments(args, kwargs)) if classes and not makes else []
        if not modes and not found:
            return below(args, kwargs)
        if spreads and len(args) == 2 and isinstance(args[1], (list, tuple)):
            args = (args[0], *args[1])
        answer = _answer if is_operator else ask
        return answer(func, found, *form(args, kwargs))

    return dispatch


@functools.cache
def _asking(cells: int) -> CodeType:
    """The code of a function that asks, with a closure of so many cells, as the function has that
    it takes the place of. It names them, so that Python copies them to where it looks for them when
    somebody reads the locals of a frame."""
    names = "".join(f"cell{i}, " for i in range(cells))
    text = (
        f"def make({names}):\n"
        "    def asking(*args, _dispatch, **kwargs):\n"
        "        return _dispatch(args, kwargs)\n"
        f"        ({names})\n"
        "    return asking\n"
    )
    scope: dict[str, Any] = {}
    exec(compile(text, __file__, "exec"), scope)
    made: CodeType = scope["make"](*[None] * cells).__code__
    return made


def _watch_function(
    function: FunctionType,
    func: Function,
    makes: bool = False,
    whole: bool = False,
    is_operator: bool = False,
) -> None:
    """Make a function ask first. func: the one that is named in the question. whole: whether the
    question has all arguments. is_operator: of Python's, with two operands."""
    signature = inspect.signature(function)
    own = FunctionType(
        function.__code__,
        function.__globals__,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    own.__kwdefaults__ = function.__kwdefaults__
    own.__annotations__ = function.__annotations__
    cells = function.__code__.co_freevars
    code = _asking(len(cells)).replace(co_name=function.__name__, co_freevars=cells)
    function.__code__, function.__defaults__ = code, None
    form = _in_full(signature) if whole else _as_given
    function.__kwdefaults__ = {"_dispatch": _dispatch(func, own, makes, form, is_operator)}
    _plain[function] = own
    function.__signature__ = signature  # type: ignore[attr-defined]


_plain: dict[FunctionType, Function] = {}  # what computes the functions that ask


def plain(function: Any) -> Any:
    """What computes a function, without the question."""
    return _plain.get(function, function)


_watching = False
_below: Function | None = None  # asks for operators, once a program has a `__torch_dispatch__`


def dispatch(asked: Function) -> None:
    """Make all public functions ask below, too: asked(func, own, args, kwargs)."""
    global _below
    watch()
    _below = asked


def watch() -> None:
    """Make all public functions and methods ask."""
    global _watching
    if _watching:
        return
    _watching = True
    if builtins.__build_class__ is _noticing_class:
        builtins.__build_class__ = _build_class
    top = importlib.import_module(_TOP)
    tensor = top.Tensor
    parameter = importlib.import_module(f"{_TOP}.nn").Parameter
    _PLAIN.update({tensor, parameter, top.dtype, top.device, top.Size})
    functions: dict[FunctionType, list[str]] = {}  # with the names that they have
    homes: dict[FunctionType, set[str]] = {}
    for full, each in public_functions():
        home, _, name = full.rpartition(".")
        functions.setdefault(each, []).append(name)
        homes.setdefault(each, set()).add(home)
    for name, each in list(vars(tensor).items()):
        if isinstance(each, FunctionType) and _is_public(name) and name not in SILENT:
            functions.setdefault(each, []).append(name)
    operators = _operators()
    for each, names in functions.items():
        if each.__name__ not in names:
            each.__name__ = names[0]
        whole = "torch.nn.functional" in homes.get(each, ()) and AS_GIVEN.isdisjoint(names)
        func, makes = operators.get(id(each), each), each.__name__ in MAKERS
        _watch_function(each, func, makes, whole, _BINARY.issuperset(names))


def _await(cls: type) -> None:
    """Make functions ask when the first object of a class is made. Tensors tell of theirs, and
    modes ask only while they are on."""
    if issubclass(cls, (Handle, importlib.import_module(f"{_TOP}.overrides").TorchFunctionMode)):
        return
    begin = vars(cls).get("__init__")
    if not isinstance(begin, FunctionType):  # a decorator may write one
        watch()
        return

    @functools.wraps(begin)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        if vars(cls).get("__init__") is __init__:
            cls.__init__ = begin  # type: ignore[method-assign]
        watch()
        begin(self, *args, **kwargs)

    cls.__init__ = __init__  # type: ignore[method-assign]


_build_class = builtins.__build_class__
_NEVER_ASKED = (_TOP, "torch")
"""The packages whose classes have no say in calls: PyTorch's are no arguments of ours."""


@functools.wraps(_build_class)
def _noticing_class(*args: Any, **kwargs: Any) -> Any:
    """Make a class, as Python's `class` does. Nothing else tells of a class that isn't one of
    tensors: functions would compute with its objects, or fail, before anybody could be asked."""
    made = _build_class(*args, **kwargs)
    has_a_say = isinstance(made, type) and "__torch_function__" in vars(made)
    if has_a_say and made.__module__.partition(".")[0] not in _NEVER_ASKED:
        _await(made)
    return made


builtins.__build_class__ = _noticing_class


def _is_public(name: str) -> bool:
    return not name.startswith("_") or (name.endswith("__") and name not in _UNASKED)


# Methods that Python itself calls, and that PyTorch's protocol leaves alone.
_UNASKED = frozenset({"__new__", "__hash__", "__init_subclass__", "__iter__", "__dlpack_device__"})


def public_functions() -> Iterator[tuple[str, FunctionType]]:
    """The functions of PyTorch's modules that ask: (full name, function)."""
    declared = importlib.import_module(f"{_TOP}.functions.call").DECLARED
    top = importlib.import_module(_TOP)
    later = [getattr(top, name) for name in top.__all__]  # those of modules that load later
    ours = {
        name + suffix
        for op in declared.values()
        for name in (op.name, *op.aliases)
        for suffix, function in (("", op.function), ("_", op.in_place_function))
        if function is not None
    }
    for path, home in SPACES.items():
        module = importlib.import_module(f"{_TOP}.{home}" if home else _TOP)
        for name in getattr(module, "__all__", None) or dir(module):
            each = getattr(module, name, None)
            if not isinstance(each, FunctionType) or name.startswith("_") or name in SILENT:
                continue
            at_root = path == "torch" and name not in ours
            if at_root and name not in MAKERS and not name.endswith(("_like", "_")):
                continue
            yield f"{path}.{name}", each
    del later


def _operators() -> dict[int, Function]:
    """The methods that PyTorch names when an operator is used, by our operator's id."""
    declared = importlib.import_module(f"{_TOP}.functions.call").DECLARED
    named: dict[int, Function] = {}
    for op in declared.values():
        for operator, method in (op.operators or {}).items():
            reflected = operator.startswith("__r") and operator.removeprefix("__r") in _COMMUTES
            forward = operator.strip("_") in _FORWARD
            if op.method is not None and (forward or reflected):
                named[id(method)] = op.method
            elif (
                op.in_place is not None and operator.startswith("__i") and operator != "__invert__"
            ):
                named[id(method)] = op.in_place
    return named


_FORWARD = frozenset("add sub mul truediv mod pow matmul neg gt lt ge le ne".split())
_COMMUTES = frozenset({"add__", "mul__"})

# ---- classes of tensors ------------------------------------------------------------------------


def default(cls: type, func: Function, types: Any, args: Any, kwargs: Any) -> Any:
    """The `__torch_function__` of Tensor: results are of the subclass that was given."""
    if not all(issubclass(cls, each) for each in types):
        return NotImplemented
    if any(_is_foreign(each) for each in arguments(args, kwargs or {})):
        return NotImplemented  # also a tensor of PyTorch, whose functions ask ours
    with without_classes():
        result = func(*args, **(kwargs or {}))
    return result if func in unwrapped() else _converted(result, cls)


def _is_foreign(value: Any) -> bool:
    """Whether a value has a say, and is no tensor of ours."""
    own = getattr(type(value), "__torch_function__", None)
    return own is not None and own is not disabled and not isinstance(value, Handle)


def unwrapped() -> set[Function]:
    """The functions whose results keep their class."""
    tensor = importlib.import_module(_TENSOR).Tensor
    return {vars(tensor)[name].__get__ for name in ("_base", "grad")}


def _converted(result: Any, cls: type) -> Any:
    if isinstance(result, Handle):
        kept = isinstance(result, cls) or getattr(cls, "__torch_dispatch__", None) is not None
        return result if kept else result.as_subclass(cls)  # type: ignore[attr-defined]
    if isinstance(result, (tuple, list)):
        parts = [_converted(each, cls) for each in result]
        return type(result)(*parts) if hasattr(result, "_fields") else type(result)(parts)
    return result


_adopted: set[type] = set()


def adopt(cls: type) -> None:
    """Prepare for tensors of a subclass: functions ask from now on, and so do its properties."""
    if cls in _adopted or getattr(cls, "__torch_function__", disabled) is disabled:
        return
    _adopted.add(cls)
    watch()
    tensor = importlib.import_module(_TENSOR).Tensor
    for name, value in list(vars(tensor).items()):
        if not isinstance(value, property) or name == "__dict__":
            continue
        if inspect.getattr_static(cls, name, None) is value:
            setattr(cls, name, _asking_property(value))


def _asking_property(plain: property) -> property:
    """A property of a subclass that asks before it is read, written or deleted."""

    def asking(name: str, own: Function | None) -> Any:
        if own is None:
            return None
        func = getattr(plain, name)

        def call(*args: Any) -> Any:
            if not state.classes and not state.modes:
                return own(*args)
            found = overriding(args) if state.classes else []
            return ask(func, found, args, {}) if found or state.modes else own(*args)

        return call

    return property(
        asking("__get__", plain.fget),
        asking("__set__", plain.fset),
        asking("__delete__", plain.fdel),
        plain.__doc__,
    )
