"""Module: the base of all layers and models."""

from __future__ import annotations

import importlib
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar

from tilewright.ir.location import at_user_line

from .. import recording
from .._tensor import Tensor
from ..autograd.hooks import RemovableHandle
from ..devices import device as Device
from ..recording import threads
from . import conversion
from .entries import KINDS, Entries
from .hooks import BACKWARD, BACKWARD_PRE, FORWARD, FORWARD_PRE, NAMES, Hooks, registered
from .parameter import Buffer, Parameter
from .state import HOOKS, State

if TYPE_CHECKING:
    from typing_extensions import Self

    from tilewright.ir.dtype import DType

    from ..types import DeviceLike

T = TypeVar("T", bound="Module")
P = ParamSpec("P")
R = TypeVar("R", covariant=True)


class _Forward(Protocol[P, R]):
    """A module typed by its `forward`: a call takes and returns the same."""

    _hooks: Hooks | None

    def forward(self, *args: P.args, **kwargs: P.kwargs) -> R: ...


def _unimplemented(self: Module, *args: Any, **kwargs: Any) -> Any:
    raise NotImplementedError(
        f'Module [{type(self).__name__}] is missing the required "forward" function'
    )


class Module(State):
    """The base of all layers and models: holds parameters, buffers and other modules.

    Subclasses call `super().__init__()`, assign their parts as attributes and define `forward`.
    """

    dump_patches = False  # PyTorch's older mark of modules with versions
    call_super_init = False
    T_destination = TypeVar("T_destination", bound="dict[str, Any]")

    training: bool
    _parameters: Entries
    _buffers: Entries
    _modules: Entries
    _hooks: Hooks | None = None  # made at the first registration, so a call only checks for None

    _is_mirrored = True  # whether attributes of `Entries` are in `__dict__`, too

    forward: Callable[..., Any] = _unimplemented

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        asked = next(c for c in cls.__mro__ if "__getattr__" in vars(c))
        cls._is_mirrored = vars(asked).get("_is_mirrored", False)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if args or kwargs:
            got = len(args) + 1 if args else f"unexpected keyword {next(iter(kwargs))!r}"
            raise TypeError(
                f"{type(self).__name__}.__init__() takes 1 positional argument but got {got}"
            )
        own = self.__dict__
        own["training"] = True
        own["_parameters"], own["_buffers"] = Entries(self), Entries(self)
        own["_modules"] = Entries(self)
        own["_non_persistent_buffers_set"] = set()

    @threads.gives_way
    def __call__(self: _Forward[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        if self._hooks is not None:
            return self._hooks.call(self, args, kwargs)  # type: ignore[arg-type]
        return self.forward(*args, **kwargs)

    # ---- attributes --------------------------------------------------------------------------

    def _entries(self, kind: str, what: str) -> Entries:
        found = self.__dict__.get(kind)
        if found is None:
            raise AttributeError(f"cannot assign {what} before Module.__init__() call")
        return found

    def __setattr__(self, name: str, value: Any) -> None:
        own = self.__dict__
        if isinstance(value, Parameter):
            self._entries("_parameters", "parameters")
            self._forget(name, "_parameters")
            self.register_parameter(name, value)
        elif isinstance(value, Module):
            modules = self._entries("_modules", "module")
            self._forget(name, "_modules")
            modules[name] = registered(self, "module", name, value)
        elif name in own.get("_parameters", ()):
            if value is not None:
                raise TypeError(
                    f"cannot assign '{type(value).__name__}' as parameter '{name}' "
                    f"(torch.nn.Parameter or None expected){at_user_line()}"
                )
            own["_parameters"][name] = None
        elif name in own.get("_modules", ()):
            if value is not None:
                raise TypeError(
                    f"cannot assign '{type(value).__name__}' as child module '{name}' "
                    f"(torch.nn.Module or None expected){at_user_line()}"
                )
            own["_modules"][name] = None
        elif isinstance(value, Buffer) or name in own.get("_buffers", ()):
            if value is not None and not isinstance(value, Tensor):
                raise TypeError(
                    f"cannot assign '{type(value).__name__}' as buffer '{name}' "
                    f"(torch.Tensor or None expected){at_user_line()}"
                )
            if isinstance(value, Buffer):
                self._forget(name, "_buffers")
                self.register_buffer(name, value, value.persistent)
            else:
                own["_buffers"][name] = value
        elif name in KINDS and isinstance(value, Mapping):
            self._replace(name, value)
        else:
            super().__setattr__(name, value)

    def _replace(self, kind: str, items: Mapping[str, Any]) -> None:
        """Hold other parameters, buffers or children. Copies of modules are made this way: their
        `__dict__` is another module's, and then its dictionaries are replaced by copies."""
        own = self.__dict__
        for name, value in own.get(kind, {}).items():
            if own.get(name) is value:  # not an attribute that only has the name
                del own[name]
        own[kind] = Entries(self, items)

    def _forget(self, name: str, keep: str) -> None:
        """Remove `name` from everywhere but the entries called `keep`."""
        own = self.__dict__
        for kind in KINDS:
            if kind != keep and name in own.get(kind, ()):
                del own[kind][name]
        if name not in own.get(keep, ()):
            own.pop(name, None)
        own["_non_persistent_buffers_set"].discard(name)

    def __delattr__(self, name: str) -> None:
        for kind in KINDS:
            if name in self.__dict__[kind]:
                del self.__dict__[kind][name]
                self._non_persistent_buffers_set.discard(name)
                return
        super().__delattr__(name)

    def __getattr__(self, name: str) -> Any:
        if name in KINDS or name == "training":
            raise AttributeError(
                f"{type(self).__name__}.__init__() must call super().__init__() before anything "
                f"that needs '{name}'"
            )
        # Python finds these without this method. A wrapper's `__getattr__` may call it for them.
        for kind in KINDS:
            if name in self.__dict__.get(kind, ()):
                return self.__dict__[kind][name]
        if name in HOOKS:
            return self.__dict__.setdefault(name, OrderedDict())
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._parameters, *self._modules, *self._buffers})

    def __setstate__(self, state: dict[str, Any]) -> None:
        left = {*NAMES, *self._derived}  # of PyTorch's modules, or made anew
        self.__dict__.update({k: v for k, v in state.items() if k not in left})
        for kind in KINDS:
            self.__dict__[kind] = Entries(self, state.get(kind))
        self.__dict__.setdefault("_non_persistent_buffers_set", set())
        for name in NAMES:
            if state.get(name):
                self._hook_registry()[name].update(state[name])
        self._derive()

    def _replicate_for_data_parallel(self) -> Self:
        """A copy that stands for the module on another device: it has the same attributes, and
        children, buffers and parameters of its own, of which the last are to be given to it."""
        replica = type(self).__new__(type(self))
        theirs = {*self._parameters, *KINDS}
        replica.__dict__.update({k: v for k, v in self.__dict__.items() if k not in theirs})
        replica.__dict__["_parameters"] = Entries(replica)
        replica.__dict__["_buffers"] = Entries(replica, self._buffers)
        replica.__dict__["_modules"] = Entries(replica, self._modules)
        replica._is_replica = True
        return replica

    _derived: tuple[str, ...] = ()
    """The names of attributes that follow from others, and aren't saved."""

    def _derive(self) -> None:
        """Make them."""

    def _fields_of_torch(self) -> dict[str, Any]:
        """Attributes that PyTorch's class has beside ours: a saved module has them too."""
        return {}

    def _check_name(self, name: Any, what: str) -> None:
        if not isinstance(name, str):
            raise TypeError(f"{what} name should be a string. Got {type(name).__name__}")
        if "." in name:
            raise KeyError(f'{what} name can\'t contain "."')
        if name == "":
            raise KeyError(f'{what} name can\'t be empty string ""')

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Add a parameter, or None for one that is left out."""
        entries = self._entries("_parameters", "parameters")
        self._check_name(name, "parameter")
        if hasattr(self, name) and name not in entries:
            raise KeyError(f"attribute '{name}' already exists")
        if param is not None and not isinstance(param, Parameter):
            raise TypeError(
                f"cannot assign '{type(param).__name__}' object to parameter '{name}' "
                "(torch.nn.Parameter or None required)"
            )
        entries[name] = registered(self, "parameter", name, param)

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Add a tensor that belongs to the module's state but is not trained."""
        entries = self._entries("_buffers", "buffer")
        self._check_name(name, "buffer")
        if hasattr(self, name) and name not in entries:
            raise KeyError(f"attribute '{name}' already exists")
        if tensor is not None and not isinstance(tensor, Tensor):
            raise TypeError(
                f"cannot assign '{type(tensor).__name__}' object to buffer '{name}' "
                "(torch Tensor or None required)"
            )
        entries[name] = registered(self, "buffer", name, tensor)
        if persistent:
            self._non_persistent_buffers_set.discard(name)
        else:
            self._non_persistent_buffers_set.add(name)

    def add_module(self, name: str, module: Module | None) -> None:
        """Add a child module."""
        if module is not None and not isinstance(module, Module):
            raise TypeError(f"{type(module).__name__} is not a Module subclass")
        entries = self._entries("_modules", "module")
        self._check_name(name, "module")
        if hasattr(self, name) and name not in entries:
            raise KeyError(f"attribute '{name}' already exists")
        entries[name] = registered(self, "module", name, module)

    register_module = add_module

    # ---- walks -------------------------------------------------------------------------------

    def named_modules(
        self, memo: set[Module] | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Module]]:
        """This module and all below it, with dotted names."""
        memo = set() if memo is None else memo
        if self in memo:
            return
        if remove_duplicate:
            memo.add(self)
        yield prefix, self
        for name, module in self._modules.items():
            if module is not None:
                below = f"{prefix}.{name}" if prefix else name
                yield from module.named_modules(memo, below, remove_duplicate)

    def modules(self, remove_duplicate: bool = True) -> Iterator[Module]:
        for _, module in self.named_modules(remove_duplicate=remove_duplicate):
            yield module

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """The modules directly below this one."""
        memo: set[Module] = set()
        for name, module in self._modules.items():
            if module is not None and module not in memo:
                memo.add(module)
                yield name, module

    def children(self) -> Iterator[Module]:
        for _, module in self.named_children():
            yield module

    def _named_members(
        self, kind: str, prefix: str, recurse: bool, remove_duplicate: bool
    ) -> Iterator[tuple[str, Any]]:
        memo: set[Any] = set()
        found = self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate)
        for path, module in found if recurse else [(prefix, self)]:
            for name, value in module.__dict__[kind].items():
                if value is None or value in memo:
                    continue
                if remove_duplicate:
                    memo.add(value)
                yield f"{path}.{name}" if path else name, value

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Parameter]]:
        """Parameters with dotted names, each once."""
        return self._named_members("_parameters", prefix, recurse, remove_duplicate)

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        for _, parameter in self.named_parameters(recurse=recurse):
            yield parameter

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """Buffers with dotted names, each once."""
        return self._named_members("_buffers", prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        for _, buffer in self.named_buffers(recurse=recurse):
            yield buffer

    def get_submodule(self, target: str) -> Module:
        """The module at a dotted path; the empty path is this module."""
        module: Module = self
        for name in target.split(".") if target else ():
            if name not in module._modules:
                raise AttributeError(f"{type(module).__name__} has no attribute `{name}`")
            module = module._modules[name]
        return module

    def get_parameter(self, target: str) -> Parameter:
        return self._get_member("_parameters", "an nn.Parameter", target)

    def get_buffer(self, target: str) -> Tensor:
        return self._get_member("_buffers", "a buffer", target)

    def _get_member(self, kind: str, what: str, target: str) -> Any:
        path, _, name = target.rpartition(".")
        module = self.get_submodule(path)
        if name not in module.__dict__[kind]:
            if not hasattr(module, name):
                raise AttributeError(f"{type(module).__name__} has no attribute `{name}`")
            raise AttributeError(f"`{name}` is not {what}")
        return module.__dict__[kind][name]

    def apply(self: T, fn: Callable[[Module], Any]) -> T:
        """Call `fn` on every module below, then on this one."""
        for module in self.children():
            module.apply(fn)
        fn(self)
        return self

    # ---- modes and conversions ---------------------------------------------------------------

    def train(self: T, mode: bool = True) -> T:
        """Set training mode here and below."""
        if not isinstance(mode, bool):
            raise ValueError("training mode is expected to be boolean")
        self.training = mode
        for module in self.children():
            module.train(mode)
        return self

    def eval(self: T) -> T:
        """Set evaluation mode here and below."""
        return self.train(False)

    def requires_grad_(self: T, requires_grad: bool = True) -> T:
        for parameter in self.parameters():
            parameter.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients of all parameters (or make them zero)."""
        for parameter in self.parameters():
            if parameter._grad is None:
                continue
            if set_to_none:
                parameter._grad = None
            else:
                parameter._grad.detach_()
                parameter._grad.zero_()

    def _apply(self: T, fn: Callable[[Any], Any], recurse: bool = True) -> T:
        """Replace the value of every parameter and buffer by `fn(value)`. A child whose class has
        an `_apply` of its own is asked to do it."""
        modules, others = _by_apply(self) if recurse else ([self], [])
        for other in others:
            other._apply(fn)
        moved: list[tuple[Any, Any]] = []
        seen: set[int] = set()
        with recording.grad_mode(False):
            for module in modules:
                for name, value in module._buffers.items():
                    if value is not None:
                        module._buffers[name] = fn(value)
                for name, value in module._parameters.items():
                    if value is None or (id(value) in seen and not conversion.overwrites):
                        continue
                    seen.add(id(value))
                    if conversion.overwrites:
                        module._parameters[name] = conversion.converted(value, fn)
                        continue
                    moved.append((value, fn(value)))
                    if value._grad is not None:
                        value._grad = fn(value._grad)
        recording.flush()
        for value, new in moved:
            if new is not value:
                recording.adopt(value, new)
                if hasattr(new, "fake_device"):  # of a tensor that tells another device
                    value.fake_device = new.fake_device
        return self

    def to(self: T, *args: Any, **kwargs: Any) -> T:
        """Move to a device and cast floating-point parameters and buffers to a dtype."""
        from tilewright.ir.dtype import DType

        device, dtype = kwargs.pop("device", None), kwargs.pop("dtype", None)
        for option in ("non_blocking", "memory_format"):
            kwargs.pop(option, None)
        if kwargs:
            raise TypeError(f"to() got an unexpected keyword argument {next(iter(kwargs))!r}")
        for arg in args:
            if isinstance(arg, DType):
                dtype = arg
            elif isinstance(arg, Tensor):
                device, dtype = arg.device, arg.dtype
            elif isinstance(arg, (str, Device)) or type(arg) is int:
                device = arg
            elif arg is not None and not isinstance(arg, bool):
                raise TypeError(
                    f"to() received an invalid argument of type {type(arg).__name__}"
                    f"{at_user_line()}"
                )
        if dtype is not None and not dtype.is_differentiable:
            raise TypeError(
                "nn.Module.to only accepts floating point or complex dtypes, but got desired "
                f"dtype={dtype}{at_user_line()}"
            )

        def convert(t: Any) -> Any:
            return t.to(device=device, dtype=dtype if t.dtype.is_differentiable else None)

        return self._apply(convert)

    def _cast(self: T, method: str) -> T:
        return self._apply(lambda t: getattr(t, method)() if t.is_floating_point() else t)

    def float(self: T) -> T:
        return self._cast("float")

    def double(self: T) -> T:
        return self._cast("double")

    def half(self: T) -> T:
        return self._cast("half")

    def bfloat16(self: T) -> T:
        return self._cast("bfloat16")

    def type(self: T, dst_type: DType | str) -> T:
        return self._apply(lambda t: t.type(dst_type))

    def cpu(self: T) -> T:
        return self._apply(lambda t: t.cpu())

    def cuda(self: T, device: DeviceLike | None = None) -> T:
        return self._apply(lambda t: t.cuda(device))

    def to_empty(self: T, *, device: DeviceLike | None, recurse: bool = True) -> T:
        """Move parameters and buffers to a device without their values, which are then any."""

        def fresh(t: Tensor) -> Tensor:
            from ..functions.creation import empty_like

            return empty_like(t, device=device)

        return self._apply(fresh, recurse)

    def share_memory(self: T) -> T:
        """Move parameters and buffers to memory that processes share."""
        return self._apply(lambda t: t.share_memory_())

    def set_submodule(self, target: str, module: Module, strict: bool = False) -> None:
        """Put `module` at the path `target`. strict: only where a module is already."""
        if not target:
            raise ValueError("Cannot set the submodule without a target name!")
        path, _, name = target.rpartition(".")
        if not isinstance(module, Module):
            raise ValueError(f"`module` is not an nn.Module, found {type(module)}")
        parent = self.get_submodule(path)
        if strict and not hasattr(parent, name):
            raise AttributeError(f"{parent._get_name()} has no attribute `{name}`")
        if hasattr(parent, name) and not isinstance(getattr(parent, name), Module):
            raise AttributeError(f"`{name}` is not an nn.Module")
        setattr(parent, name, module)

    def _on(self, kind: str, device: DeviceLike | None) -> Any:
        return self.to(f"{kind}:{device}" if isinstance(device, int) else device or kind)

    def xpu(self, device: DeviceLike | None = None) -> Any:
        """Refused as any move to a device that isn't there."""
        return self._on("xpu", device)

    def mtia(self, device: DeviceLike | None = None) -> Any:
        """Refused as any move to a device that isn't there."""
        return self._on("mtia", device)

    def ipu(self, device: DeviceLike | None = None) -> Any:
        """Refused as any move to a device that isn't there."""
        return self._on("ipu", device)

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Compile `forward` as `torch.compile` does, if its graphs go to a backend of the program's
        own. There is nothing to do for PyTorch's: every step is compiled."""
        compiled = importlib.import_module("..compiler", __package__).compile(
            self.forward, *args, **kwargs
        )
        if hasattr(compiled, "graphs"):
            self.forward = compiled  # type: ignore[method-assign]

    # ---- hooks -------------------------------------------------------------------------------

    def _hook_registry(self) -> Hooks:
        own = self.__dict__
        if "_hooks" not in own:
            own["_hooks"] = Hooks()
        hooks: Hooks = own["_hooks"]
        return hooks

    def register_forward_pre_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False
    ) -> RemovableHandle:
        """Call hook(module, args) before `forward`; what it returns replaces the arguments."""
        return self._hook_registry().add(
            FORWARD_PRE, hook, prepend, _forward_pre_hooks_with_kwargs=with_kwargs
        )

    def register_forward_hook(
        self,
        hook: Callable[..., Any],
        *,
        prepend: bool = False,
        with_kwargs: bool = False,
        always_call: bool = False,
    ) -> RemovableHandle:
        """Call hook(module, args, output) after `forward`; what it returns replaces the output.

        always_call: call it even if `forward` raises, with None for the output.
        """
        return self._hook_registry().add(
            FORWARD,
            hook,
            prepend,
            _forward_hooks_with_kwargs=with_kwargs,
            _forward_hooks_always_called=always_call,
        )

    def register_full_backward_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """Call hook(module, grad_input, grad_output) when the gradients of the inputs are known;
        what it returns replaces grad_input."""
        return self._hook_registry().add(BACKWARD, hook, prepend)

    def register_full_backward_pre_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """Call hook(module, grad_output) when the gradients of the outputs are known; what it
        returns replaces grad_output."""
        return self._hook_registry().add(BACKWARD_PRE, hook, prepend)

    register_backward_hook = register_full_backward_hook

    @property
    def _is_full_backward_hook(self) -> bool | None:
        return True if self._hooks is not None and self._hooks.of(BACKWARD) else None

    # ---- repr --------------------------------------------------------------------------------

    def _get_name(self) -> str:
        return type(self).__name__

    def extra_repr(self) -> str:
        """The options shown in the repr. Layers override it."""
        return ""

    def __repr__(self) -> str:
        extra = self.extra_repr()
        lines = extra.split("\n") if extra else []
        children = [
            f"({name}): " + repr(module).replace("\n", "\n  ")
            for name, module in self._modules.items()
        ]
        if not children and len(lines) <= 1:
            return f"{self._get_name()}({extra})"
        return f"{self._get_name()}(\n  " + "\n  ".join(lines + children) + "\n)"


def _of_hooks(name: str) -> property:
    """The attribute with a module's hooks of one kind, made when it is first looked at."""

    def get(self: Module) -> Any:
        return self._hook_registry()[name]

    def set_(self: Module, hooks: Any) -> None:
        self._hook_registry()[name] = hooks

    return property(get, set_)


for _name in NAMES:
    setattr(Module, _name, _of_hooks(_name))


def _by_apply(module: Module) -> tuple[list[Module], list[Module]]:
    """A module and all in it, but for what stands in the second list or below: modules with an
    `_apply` of their own."""
    modules, seen = [module], {id(module)}
    others: list[Module] = []
    for each in modules:  # which grows
        for child in each._modules.values():
            if child is not None and id(child) not in seen:
                seen.add(id(child))
                has_own = type(child)._apply is not Module._apply
                (others if has_own else modules).append(child)
    return modules, others
