"""Tensor: a handle of a value that may not be computed yet, with PyTorch's methods."""

from __future__ import annotations

import copy
import importlib
import warnings
from collections.abc import Callable, Iterator, Sequence
from sys import getrefcount
from typing import TYPE_CHECKING, Any, SupportsIndex, overload

import numpy as np

from tilewright.ir import ops
from tilewright.ir.dtype import DType, complex32, is_added
from tilewright.ir.location import at_user_line, warn
from tilewright.ir.node import Node
from tilewright.ir.numeric.special import cast
from tilewright.ir.shape import Size

from . import devices as device_module
from . import layouts, overriding, recording
from .autograd.grad_fn import GradFn
from .devices import device as Device
from .exchange import arrays, copies, resizing, storages
from .exchange.mirror import Mirror
from .exchange.pinning import is_pinned, pinned
from .functions import arguments, complexes, conversions, creation, indexing, parts, shapes
from .recording import Handle, calls, epoch, record, resolve, views
from .recording.builders import builder
from .recording.compounds import gradients, is_compound
from .recording.roots import source_of

if TYPE_CHECKING:
    from typing_extensions import Self

    from .autograd.hooks import RemovableHandle
    from .types import DeviceLike, Number

_fields = Handle.__mro__[-2].__dict__["__dict__"].__get__  # Python's own `__dict__` of an instance
_OWN = {name for kind in Handle.__mro__[:-1] for name in vars(kind)}


class Attributes(Mirror):
    """The attributes that a program gave to a tensor, without the tensor's own."""

    __slots__ = ("_written",)

    def __init__(self, fields: dict[str, Any]):
        super().__init__({name: value for name, value in fields.items() if name not in _OWN})
        self._written = fields

    def _other(self) -> dict[str, Any]:
        return self._written


if TYPE_CHECKING:
    from ._methods import Methods  # the methods of declared ops; tools/stubs.py writes them
else:
    Methods = Handle


class _TensorMeta(type(Handle)):  # type: ignore[misc]
    """The class of Tensor and its subclasses. Each has Tensor's `__dict__` as its own, or a second
    base class would show a tensor's state among its attributes."""

    def __new__(mcs, name: str, bases: Any, body: dict[str, Any], **options: Any) -> Any:
        tensors = [base for base in bases if isinstance(base, _TensorMeta)]
        if tensors:
            body.setdefault("__dict__", vars(tensors[0])["__dict__"])
        return super().__new__(mcs, name, bases, body, **options)


class Tensor(Methods, metaclass=_TensorMeta):
    """A multi-dimensional array on a device, recorded when called, computed when read.

    torch.tensor and the other creation functions make tensors. Tensor(data) makes a float32 copy of
    `data`, Tensor(2, 3) zeros of that shape.
    """

    def __new__(cls, *data: Any, **options: Any) -> Any:
        from .functions import typed

        made = typed.constructed(None, None, data, **options)
        if cls is Tensor:
            return made
        return made.as_subclass(cls)

    def as_subclass(self, cls: type) -> Any:
        """This tensor as an instance of a subclass of Tensor, sharing its memory."""
        out: Any = object.__new__(cls)
        storage = recording.storage_of(self)
        out._storage, out._chain, out._aval = storage, self._chain, self._typed()
        out._root, out._leaf, out._writes = self._root, self._leaf, self._writes
        overriding.adopt(cls)
        return out

    @staticmethod
    def _make_subclass(cls: type, data: Tensor, require_grad: bool = False, **_: Any) -> Any:
        """`data` without its history as an instance of `cls`, sharing its memory."""
        made = data.detach().as_subclass(cls)
        return made.requires_grad_() if require_grad else made

    @staticmethod
    def _make_wrapper_subclass(cls: type, *args: Any, **options: Any) -> Any:
        """A tensor of `cls` without memory, whose `__torch_dispatch__` is asked for operators."""
        wrappers = importlib.import_module(".dispatching.wrappers", __package__)
        return wrappers.make_wrapper(cls, *args, **options)

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """What a call gives of which an argument is of this subclass: the function's result, of the
        subclass too. A subclass overrides it."""
        return overriding.default(cls, func, types, args, kwargs)

    @property
    def __dict__(self) -> dict[str, Any]:  # type: ignore[override]
        return Attributes(_fields(self))

    @__dict__.setter
    def __dict__(self, attributes: dict[str, Any]) -> None:
        own = Attributes(_fields(self))
        own.clear()
        own.update(attributes)

    # ---- properties --------------------------------------------------------------------------

    def _typed(self) -> tuple[Size, DType, str]:
        node = self._node
        if node is not None:
            return node.shape, node.dtype, node.device or "cpu"
        aval = self._aval
        assert aval is not None, "a tensor has a node or a buffer"
        return aval

    @property
    def shape(self) -> Size:
        node = self._node
        return node.shape if node is not None else self._aval[0]  # type: ignore[index]

    @property
    def dtype(self) -> DType:
        node = self._node
        return node.dtype if node is not None else self._aval[1]  # type: ignore[index]

    @property
    def device(self) -> Device:
        return device_module.named(self._typed()[2])

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def requires_grad(self) -> bool:
        node = self._node
        if node is not None:
            return node.requires_grad
        storage = self._storage
        if storage is None:
            return self._requires_grad or self._history is not None
        if self._requires_grad:
            return True
        if self._root is not None and (source := source_of(self)) is not None:
            return source.requires_grad
        if storage._node is not None:
            base = storage._node.requires_grad
        else:
            base = storage._requires_grad or storage._history is not None
        if not base:
            return False
        return self._chain is None or not self._chain.detaches

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        if value.__class__ is not bool:
            raise RuntimeError(f"requires_grad must be a bool{at_user_line()}")
        self.requires_grad_(value)

    def _get_grad(self) -> Tensor | None:
        found: Any = self._grad
        if found is None and self.requires_grad and not self.is_leaf and not self.retains_grad:
            warn(
                "The .grad attribute of a Tensor that is not a leaf Tensor is being accessed. Its "
                ".grad attribute won't be populated during autograd.backward(). If you indeed want "
                "the .grad field to be populated for a non-leaf Tensor, use .retain_grad() on the "
                "non-leaf Tensor."
            )
        return found

    def _set_grad(self, value: Tensor | None) -> None:
        if value is not None:
            _check_grad(self, value)
        self._grad = value

    def _del_grad(self) -> None:
        self._grad = None

    if TYPE_CHECKING:
        grad: Tensor | None
    else:
        grad = property(_get_grad, _set_grad, _del_grad, doc="The gradient of a leaf, or None.")

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Begin (or stop) to collect gradients in `.grad`."""
        recording.claim()
        if requires_grad.__class__ is not bool:
            raise TypeError(
                "requires_grad_(): argument 'requires_grad' must be bool, not "
                f"{type(requires_grad).__name__}{at_user_line()}"
            )
        if requires_grad == self.requires_grad:
            return self
        if epoch.inferred and not epoch.inferring and recording.is_inference(self):
            raise RuntimeError(
                "Setting requires_grad=True on inference tensor outside InferenceMode is not "
                f"allowed{at_user_line()}"
            )
        if not requires_grad and not self.is_leaf:
            raise RuntimeError(
                "you can only change requires_grad flags of leaf variables. If you want to use "
                "a computed variable in a subgraph that doesn't require differentiation use "
                f"var_no_grad = var.detach().{at_user_line()}"
            )
        if requires_grad and not self.dtype.is_differentiable:
            raise RuntimeError(
                "only Tensors of floating point and complex dtype can require gradients, got "
                f"{self.dtype}{at_user_line()}"
            )
        recording.set_requires_grad(self, requires_grad)
        return self

    @property
    def is_leaf(self) -> bool:
        if not self.requires_grad:
            return True
        node = self._node
        if node is not None:
            return node.op is ops.variable and recording.variable_target(node.attrs[0]) is self
        return self._requires_grad

    @property
    def grad_fn(self) -> GradFn | None:
        """The operation that computed this tensor, if a gradient flows through it."""
        if not self.requires_grad or self.is_leaf:
            return None
        node = resolve(self)
        history = None if self._chain is None else self._history
        if history is not None:  # an earlier epoch made this view
            return GradFn.of(history.node, self._chain, history.ends())
        return GradFn.of(node, self._chain)

    @property
    def output_nr(self) -> int:
        return 0

    @property
    def _version(self) -> int:
        """The number of writes in place to its memory. Inference tensors don't count them."""
        if epoch.inferred and recording.is_inference(self):
            raise RuntimeError(f"Inference tensors do not track version counter{at_user_line()}")
        return recording.version(self)

    @property
    def data(self) -> Tensor:
        return recording.view(self, views.DATA)

    @data.setter
    def data(self, value: Tensor) -> None:
        if not isinstance(value, Tensor):
            raise TypeError(f"expected a Tensor, got {type(value).__name__}{at_user_line()}")
        recording.set_data(self, value.detach(), is_read=True)

    @property
    def _base(self) -> Tensor | None:
        """The tensor that a view was made of; None if this is no view."""
        return storages.base(self) if self._is_view() else None

    def _is_view(self) -> bool:
        """Whether this tensor is a part of another one's memory, and shares its history."""
        return self._chain is not None and not self._chain.view.detaches

    @property
    def _backward_hooks(self) -> dict[int, Any] | None:
        """The hooks that see its gradient, by number."""
        return self._hooks

    @property
    def name(self) -> None:
        """None: tensors have no names."""

    @property
    def volatile(self) -> bool:
        """False; deprecated."""
        warnings.warn("volatile was removed (Variable.volatile is always False)", stacklevel=2)
        return False

    @property
    def grad_dtype(self) -> DType | None:
        """The dtype of a leaf's `.grad`: its own, unless another one is assigned. None lets
        gradients of any dtype be assigned to it."""
        self._need_leaf("accessed")
        return self.dtype if self._grad_dtype is NotImplemented else self._grad_dtype

    @grad_dtype.setter
    def grad_dtype(self, dtype: DType | None) -> None:
        if dtype is not None and not isinstance(dtype, DType):
            raise RuntimeError(
                f"grad_dtype must be a torch.dtype or None, but got {type(dtype).__name__}"
                f"{at_user_line()}"
            )
        self._need_leaf("set")
        held = self._grad
        if held is not None and dtype is not None and held.dtype is not dtype:
            raise RuntimeError(
                f"Cannot set grad_dtype to {dtype} because there is already a gradient with dtype "
                f"{held.dtype}. Please clear the gradient (.grad = None) before changing "
                f"grad_dtype{at_user_line()}"
            )
        self._grad_dtype = NotImplemented if dtype is self.dtype else dtype

    def _need_leaf(self, done: str) -> None:
        if not self.is_leaf:
            raise RuntimeError(f"grad_dtype can only be {done} on leaf tensors.{at_user_line()}")

    def detach(self) -> Tensor:
        """The same memory without the history."""
        return recording.view(self, views.DETACH)

    def detach_(self) -> Self:
        """Forget how this tensor was computed."""
        if not self.requires_grad:
            return self
        if self._chain is not None and not self._chain.view.detaches:
            raise RuntimeError(
                f"Can't detach views in-place. Use detach() instead.{at_user_line()}"
            )
        storage = self._storage
        is_shared = storage is not None and getrefcount(storage) > 3  # the field, the name, this
        if is_shared and self._chain is None and not self.is_leaf:
            shapes.become(self, self.detach())  # views of it keep their history
            return self
        if self._root is not None:
            self._root.own = None
        recording.set_requires_grad(self, False)
        return self

    def dim(self) -> int:
        return len(self.shape)

    ndimension = dim

    @overload
    def size(self, dim: None = None) -> Size: ...

    @overload
    def size(self, dim: int) -> int: ...

    def size(self, dim: int | None = None) -> Any:
        return self.shape if dim is None else self.shape[dim]

    def numel(self) -> int:
        return self.shape.numel()

    nelement = numel

    def element_size(self) -> int:
        return self.dtype.itemsize

    @property
    def itemsize(self) -> int:
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        return self.numel() * self.dtype.itemsize

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a 0-d tensor")
        return self.shape[0]

    @overload
    def stride(self, dim: None = None) -> tuple[int, ...]: ...

    @overload
    def stride(self, dim: int) -> int: ...

    def stride(self, dim: int | None = None) -> Any:
        strides = shapes.layout_of(self)[1]
        return strides if dim is None else strides[dim]

    def storage_offset(self) -> int:
        return shapes.layout_of(self)[2]

    def is_contiguous(self, memory_format: Any = None) -> bool:
        shape, strides, _ = shapes.layout_of(self)
        return views.is_contiguous(shape, strides)

    def is_floating_point(self) -> bool:
        return self.dtype.is_floating_point

    def is_complex(self) -> bool:
        return self.dtype.is_complex

    @property
    def is_cpu(self) -> bool:
        return self.device.type == "cpu"

    @property
    def is_cuda(self) -> bool:
        return self.device.type == "cuda"

    # What no tensor is here.
    is_sparse = is_sparse_csr = is_quantized = is_nested = is_mkldnn = False
    is_mps = is_xpu = is_mtia = is_hpu = is_xla = is_vulkan = is_ipu = is_maia = False

    @property
    def is_meta(self) -> bool:
        return self._typed()[2] == "meta"

    @property
    def layout(self) -> layouts.layout:
        return layouts.strided

    @property
    def T(self) -> Tensor:
        if not self.dim():
            warn(
                "Tensor.T is deprecated on 0-D tensors. This function is the identity in these "
                "cases.",
                once=True,
            )
        elif self.dim() != 2:
            warn(
                "The use of `x.T` on tensors of dimension other than 2 to reverse their shape is "
                "deprecated and it will throw an error in a future release. Consider `x.mT` to "
                "transpose batches of matrices or `x.permute(*torch.arange(x.ndim - 1, -1, -1))` "
                "to reverse the dimensions of a tensor.",
                once=True,
            )
        return shapes.permute(self, range(self.dim() - 1, -1, -1))

    @property
    def real(self) -> Tensor:
        """A view of the real parts; a real tensor itself."""
        return complexes.real(self)

    @real.setter
    def real(self, value: Tensor | Number) -> None:
        complexes.real(self).copy_(value)

    @property
    def imag(self) -> Tensor:
        """A view of the imaginary parts. RuntimeError for a real tensor."""
        return complexes.imag(self)

    @imag.setter
    def imag(self, value: Tensor | Number) -> None:
        complexes.imag(self).copy_(value)

    if TYPE_CHECKING:
        mT: Tensor
        mH: Tensor
        H: Tensor
    else:
        mT, mH, H = property(shapes.mT), property(shapes.mH), property(shapes.H)

    # ---- reading values ----------------------------------------------------------------------

    def _array(self) -> np.ndarray:
        """The values as an array that must not be written."""
        return arrays.array_of(self)

    def numpy(self, *, force: bool = False) -> np.ndarray:
        """An array that shares the tensor's memory: each sees what the other writes."""
        if force:
            return arrays.export(self.detach().cpu())
        if self.requires_grad and recording.is_grad_enabled():
            raise RuntimeError(
                "Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() "
                f"instead.{at_user_line()}"
            )
        if self.device.type != "cpu":
            raise TypeError(
                f"can't convert {self.device} device type tensor to numpy. Use Tensor.cpu() to "
                "copy "
                f"the tensor to host memory first.{at_user_line()}"
            )
        if self.dtype is complex32:
            raise TypeError(f"Got unsupported ScalarType ComplexHalf{at_user_line()}")
        return arrays.export(self)

    __array_priority__ = 1000  # array + tensor is a tensor

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if dtype is not None and self.dtype.np != dtype:
            if copy is False:
                raise ValueError(
                    f"a tensor of {self.dtype} is no array of {dtype} without a copy; leave "
                    f"copy=False out{at_user_line()}"
                )
            return self.detach().cpu()._array().astype(dtype)
        return np.array(self.detach().cpu()._array()) if copy else self.numpy()

    def __array_wrap__(
        self, array: np.ndarray, context: Any = None, return_scalar: bool = False
    ) -> Tensor:
        """What a function of NumPy returns for a tensor: a tensor. Truth values become uint8, as in
        PyTorch."""
        return creation.from_numpy(array.astype(np.uint8) if array.dtype == bool else array)

    def __dlpack__(self, **options: Any) -> Any:
        return arrays.to_dlpack(self, **options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)

    def item(self) -> Any:
        """The one element as a Python number."""
        number = arrays.element_of(self)
        if number is not None:
            return number
        _, dtype, device = self._typed()
        if device == "meta":
            raise RuntimeError(f"Tensor.item() cannot be called on meta tensors{at_user_line()}")
        array = arrays.array_of(self)
        if array.size != 1:
            raise RuntimeError(
                f"a Tensor with {array.size} elements cannot be converted to Scalar{at_user_line()}"
            )
        if dtype is complex32:
            array = cast(array, np.complex64)
        return float(array.reshape(())) if is_added(array.dtype) else array.item()

    def tolist(self) -> Any:
        """The elements as nested lists of Python numbers."""
        array = self._array()
        if self.dtype is complex32:
            array = cast(array, np.complex64)
        if is_added(array.dtype):
            array = array.astype(np.float32)
        return array.tolist()

    def __bool__(self) -> bool:
        if self.numel() != 1:
            raise RuntimeError(
                "Boolean value of Tensor with "
                + ("no values" if self.numel() == 0 else "more than one value")
                + f" is ambiguous{at_user_line()}"
            )
        return bool(self.item())

    def __int__(self) -> int:
        return int(self._real_number("int64_t"))

    def __float__(self) -> float:
        return float(self._real_number("double"))

    def _real_number(self, name: str) -> Any:
        """The one element; RuntimeError if it has an imaginary part."""
        if self.requires_grad and recording.is_grad_enabled():
            warn(
                "Converting a tensor with requires_grad=True to a scalar may lead to unexpected "
                "behavior.\nConsider using tensor.detach() first.",
                once=True,
            )
        value = (self if self.shape.numel() == 1 else self._one()).item()
        if value.__class__ is complex:
            if value.imag:
                raise RuntimeError(
                    f"value cannot be converted to type {name} without overflow{at_user_line()}"
                )
            return value.real
        return value

    def _one(self) -> Any:
        if self.numel() != 1:
            raise ValueError(
                "only one element tensors can be converted to Python scalars, got one of shape "
                f"{tuple(self.shape)}{at_user_line()}"
            )
        return self

    def __index__(self) -> int:
        if self.dtype.is_differentiable or self.numel() != 1:
            raise TypeError("only integer tensors of a single element can be converted to an index")
        return int(self.item())

    def __complex__(self) -> complex:
        return complex(self._one().item())

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if self.dim() == 0 else super().__format__(spec)

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        from .exchange.printing import text

        return text(self, tensor_contents)

    def __iter__(self) -> Iterator[Tensor]:
        if not self.shape:
            raise TypeError("iteration over a 0-d tensor")
        return iter(parts.unbind(self, 0))

    def __contains__(self, element: Any) -> bool:
        return bool((self == element).any().item())

    __hash__ = object.__hash__

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        if not self.is_leaf:
            raise RuntimeError(
                "Only Tensors created explicitly by the user (graph leaves) support the deepcopy "
                f"protocol at the moment{at_user_line()}"
            )
        out = copies.deep_copied(self, memo)
        if type(self) is not Tensor:
            out = out.as_subclass(type(self))
        out.__dict__.update(copy.deepcopy(self.__dict__, memo))
        if self.requires_grad:
            out.requires_grad_()
        if self.grad is not None:
            out.grad = copy.deepcopy(self.grad.detach(), memo)
        memo[id(self)] = out
        return out

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        return copies.reduced(self)

    # ---- moving and casting ------------------------------------------------------------------

    @overload
    def to(
        self,
        dtype: DType,
        non_blocking: bool = False,
        copy: bool = False,
        *,
        memory_format: str | None = None,
    ) -> Tensor: ...

    @overload
    def to(
        self,
        device: DeviceLike | None = None,
        dtype: DType | None = None,
        non_blocking: bool = False,
        copy: bool = False,
        *,
        memory_format: str | None = None,
    ) -> Tensor: ...

    @overload
    def to(
        self,
        other: Tensor,
        non_blocking: bool = False,
        copy: bool = False,
        *,
        memory_format: str | None = None,
    ) -> Tensor: ...

    def to(self, *args: Any, **kwargs: Any) -> Tensor:
        """to(dtype), to(device), to(device, dtype) or to(other): the tensor itself if nothing
        changes.

        non_blocking: whether a copy from a GPU is only begun; reading its values waits for it.
        Copies to a GPU never wait.
        """
        if len(args) == 1 and not kwargs and args[0].__class__ is DType:  # the usual call
            return self if args[0] is self.dtype else record(conversions.cast, self, args[0])
        dtype, where, copy, non_blocking = (
            kwargs.pop("dtype", None),
            kwargs.pop("device", None),
            kwargs.pop("copy", False),
            kwargs.pop("non_blocking", False),
        )
        kwargs.pop("memory_format", None)
        flags: list[bool] = []
        if kwargs:
            raise TypeError(
                f"to() got an unexpected keyword argument {next(iter(kwargs))!r}{at_user_line()}"
            )
        for arg in args:
            if isinstance(arg, (DType, type)):
                dtype = arg
            elif isinstance(arg, Tensor):
                dtype, where = arg.dtype, arg.device
            elif isinstance(arg, (str, Device)) or type(arg) is int:
                where = arg
            elif isinstance(arg, bool):
                flags.append(arg)
            elif arg is not None:
                raise TypeError(
                    "to() received an invalid argument of type "
                    f"{type(arg).__name__}{at_user_line()}"
                )
        non_blocking, copy = non_blocking or any(flags[:1]), copy or any(flags[1:])
        result = self
        if where is not None:
            name = device_module.resolve(where)
            if name != result._typed()[2]:
                if self.is_meta:
                    raise NotImplementedError(
                        "Cannot copy out of meta tensor; no data! Please use "
                        "torch.nn.Module.to_empty() instead of torch.nn.Module.to() when moving "
                        f"module from meta to a different device.{at_user_line()}"
                    )
                fetched = non_blocking and name == "cpu"
                result = record(conversions.copy_to, result, name, *(False,) * fetched)
        if dtype is not None:
            dtype = recording.named_dtype(dtype)
            if dtype is not result.dtype:
                result = record(conversions.cast, result, dtype)
        return shapes.clone(self) if copy and result is self else result

    def cpu(self) -> Tensor:
        return self.to(device="cpu")

    def cuda(self, device: DeviceLike | None = None, non_blocking: bool = False) -> Tensor:
        return self.to(device="cuda" if device is None else device)

    def get_device(self) -> int:
        """The number of the tensor's GPU, -1 for the CPU."""
        index = self.device.index
        return -1 if index is None else index

    def pin_memory(self, device: DeviceLike | None = None) -> Tensor:
        """A copy in pinned memory, which a GPU copies from by itself; a pinned tensor itself.

        Without a GPU, the tensor itself. After a write in place the tensor may be unpinned.
        """
        return pinned(self)

    def is_pinned(self, device: DeviceLike | None = None) -> bool:
        """Whether its value is in memory from `pin_memory`."""
        return is_pinned(self)

    def data_ptr(self) -> int:
        """The address of its first element. A value that is only recorded is computed first."""
        return storages.data_ptr(self)

    const_data_ptr = data_ptr

    def dim_order(self, *, ambiguity_check: Any = False) -> tuple[int, ...]:
        """The dimensions by the distance of their elements in memory, the farthest first.

        ambiguity_check: True refuses a tensor of which another order would say the same; a list of
        memory formats, one that is in none of them.
        """
        formats = ambiguity_check if isinstance(ambiguity_check, list) else []
        named = all(isinstance(each, layouts.memory_format) for each in formats)
        if not (named if formats else isinstance(ambiguity_check, bool)):
            raise TypeError(
                "The ambiguity_check argument must be a bool or a list of memory formats."
                f"{at_user_line()}"
            )
        strides = self.stride()
        unique = len({*strides}) == self.dim() and 1 not in self.shape
        fits = any(self.is_contiguous(memory_format=each) for each in formats)
        fits = fits or unique or not ambiguity_check
        if not fits:
            raise RuntimeError(
                "The tensor does not have unique dim order, or cannot map to exact one of the "
                f"given memory formats.{at_user_line()}"
            )
        return tuple(sorted(range(self.dim()), key=lambda d: -strides[d]))

    def storage_type(self) -> type:
        """The class of the tensor's typed storage."""
        from .exchange import typed_storages

        found: type = getattr(typed_storages, typed_storages.NAME_OF[self.dtype])
        return found

    def hash_tensor(self, *args: Any, **options: Any) -> Tensor:
        """See `torch.hash_tensor`."""
        from .functions import hashing

        return hashing.hash_tensor(self, *args, **options)

    def module_load(self, other: Tensor, assign: bool = False) -> Any:
        """What a module takes when `other` is loaded in the place of this tensor: `other`, or this
        tensor after it was written to."""
        if assign:
            return other if other.requires_grad == self.requires_grad else other.detach()
        return self.detach().copy_(other)

    def reinforce(self, *args: Any, **options: Any) -> Any:
        """Refused, as in PyTorch."""
        raise RuntimeError(
            "reinforce() was removed. Use torch.distributions instead: log_prob of the action, "
            f"times the reward, is a loss{at_user_line()}"
        )

    def untyped_storage(self) -> storages.UntypedStorage:
        """Its memory as bytes."""
        return storages.untyped_storage(self)

    def storage(self) -> storages.TypedStorage:
        """Its memory as elements of its dtype."""
        return storages.storage(self)

    _typed_storage = storage

    def share_memory_(self) -> Self:
        """Move it to memory that stays shared with the processes that get the tensor."""
        return storages.share_memory(self)

    def is_shared(self) -> bool:
        return storages.is_shared(self)

    def record_stream(self, stream: Any) -> None:
        """Do nothing: the runtime knows which streams use which memory."""

    def type(
        self, dtype: DType | str | type | None = None, non_blocking: bool = False, **_: Any
    ) -> Any:
        """The name of its type (`torch.FloatTensor`), or the tensor cast to a dtype or a type."""
        from .functions import typed

        return typed.name_of(self) if dtype is None else typed.cast(self, dtype, non_blocking)

    def new(self, *data: Any, **options: Any) -> Tensor:
        """A tensor of this tensor's type, made from data or of a size."""
        from .functions import typed

        _, dtype, device = self._typed()
        return typed.constructed(dtype, device, data, **options)

    def type_as(self, other: Tensor) -> Tensor:
        return self.to(other)

    def new_tensor(self, data: Any, **options: Any) -> Tensor:
        if isinstance(data, Tensor):
            creation.warn_of_copy("tensor.new_tensor")
            data = data.detach()._array()
        return creation.tensor(data, **{"dtype": self.dtype, "device": self.device, **options})

    def new_zeros(self, *size: Any, **options: Any) -> Tensor:
        return creation.zeros(*size, **{"dtype": self.dtype, "device": self.device, **options})

    new_empty = new_zeros

    def new_ones(self, *size: Any, **options: Any) -> Tensor:
        return creation.ones(*size, **{"dtype": self.dtype, "device": self.device, **options})

    def new_full(self, size: Sequence[int], fill_value: Number, **options: Any) -> Tensor:
        return creation.full(
            size, fill_value, **{"dtype": self.dtype, "device": self.device, **options}
        )

    # ---- autograd ----------------------------------------------------------------------------

    def backward(
        self,
        gradient: Tensor | None = None,
        retain_graph: bool | None = None,
        create_graph: bool = False,
        inputs: Tensor | Sequence[Tensor] | None = None,
    ) -> None:
        """Add the gradient of this tensor with respect to each leaf to the leaf's `.grad`."""
        from . import autograd

        autograd.backward(self, gradient, retain_graph, create_graph, inputs=inputs)

    def retain_grad(self) -> None:
        """Keep the gradient of this non-leaf tensor in `.grad` too."""
        if self.is_leaf:
            return
        from .autograd.hooks import keep_grad

        keep_grad(self)

    @property
    def retains_grad(self) -> bool:
        return bool(self._hooks and -1 in self._hooks)

    def register_post_accumulate_grad_hook(self, hook: Callable[[Tensor], None]) -> RemovableHandle:
        """Call `hook(self)` after a backward pass has added to `.grad` of this leaf."""
        from .autograd.hooks import register_post_accumulate

        return register_post_accumulate(self, hook)

    def register_hook(self, hook: Callable[[Tensor], Tensor | None]) -> RemovableHandle:
        """Call `hook(grad)` when the gradient of this tensor is known; it may return another."""
        from .autograd.hooks import register

        return register(self, hook)

    # ---- indexing ----------------------------------------------------------------------------

    def __getitem__(self, key: Any) -> Tensor:
        return indexing.getitem(self, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        indexing.setitem(self, key, value)

    # ---- in place ----------------------------------------------------------------------------

    def copy_(self, source: Tensor | Number, non_blocking: bool = False) -> Self:
        """Overwrite with `source`, broadcast and cast."""
        given = arguments.as_handle(source, self)
        if isinstance(source, complex) and not self.dtype.is_complex:
            raise RuntimeError(
                f"value cannot be converted to type {self.dtype} without overflow{at_user_line()}"
            )
        if given.device != self.device:
            given = given.to(device=self.device, non_blocking=non_blocking)
        return recording.assign(
            self, recording.node_of(_copied_value, given, self.dtype, tuple(self.shape))
        )

    def fill_(self, value: Tensor | Number) -> Self:
        return self.copy_(value)

    def zero_(self) -> Self:
        key = (Tensor.zero_, *self._typed())
        node = recording.lookup(key)
        if node is None:
            shape, dtype, device = self._typed()
            zeros = ops.expand(ops.constant(0, dtype, device), shape)
            node = recording.remember(key, zeros)
        return recording.assign(self, node)

    def fill_diagonal_(self, fill_value: Number, wrap: bool = False) -> Self:
        """Write `fill_value` to the main diagonal. With `wrap` the diagonal begins again below each
        square of a tall matrix."""
        rank, shape = self.dim(), self.shape
        if rank < 2:
            raise RuntimeError(f"dimensions must larger than 1{at_user_line()}")
        if rank > 2 and len(set(shape)) > 1:
            raise RuntimeError(f"all dimensions of input must be of equal length{at_user_line()}")
        # Below each square of a tall matrix, one row is left out and the diagonal begins anew.
        starts = range(0, shape[0], shape[1] + 1) if wrap and rank == 2 else (0,)
        for start in starts:
            line = parts.slice_dim(self, 0, start, shape[0])
            while line.dim() > 1:
                line = shapes.diagonal(line, 0, 0, line.dim() - 1)
            line.fill_(fill_value)
        return self

    def resize_(self, *sizes: Any) -> Self:
        """Change the shape in place: see `exchange.resizing.resize`. New elements are zero."""
        resizing.resize(self, Size(arguments.sizes(sizes)))
        return self

    def __delitem__(self, key: Any) -> None:
        raise TypeError("Tensor does not support deleting items")


def _check_grad(t: Any, value: Any) -> None:
    """Raise unless `value` may be the gradient of `t`."""
    if not isinstance(value, Handle):
        raise TypeError(
            "assigned grad expected to be a Tensor or None but got grad of type "
            f"{type(value).__name__}{at_user_line()}"
        )
    if is_compound(value):
        gradients.are_sparse = True
    if value is t:
        raise RuntimeError(f"can't assign Variable as its own grad{at_user_line()}")
    (shape, dtype, device), (own, kind, where) = value._typed(), t._typed()
    if tuple(shape) != tuple(own):
        raise RuntimeError(
            f"attempting to assign a gradient of size '{list(shape)}' to a tensor of size "
            f"'{list(own)}'. Please ensure that the gradient and the tensor are the same size"
            f"{at_user_line()}"
        )
    if t._grad_dtype is not NotImplemented:
        kind = dtype if t._grad_dtype is None else t._grad_dtype
    if dtype is not kind:
        raise RuntimeError(
            f"attempting to assign a gradient with dtype '{dtype}' to a tensor with grad_dtype "
            f"'{kind}'. The gradient must match the tensor's grad_dtype (defaults to the tensor's "
            f"dtype){at_user_line()}"
        )
    if device != where:
        raise RuntimeError(
            f"attempting to assign a gradient on {device} to a tensor on {where}. Please ensure "
            f"that the gradient and the tensor are on the same device{at_user_line()}"
        )


@builder("copy_", gradient="ToCopyBackward0")
def _copied_value(x: Node, dtype: DType, shape: tuple[int, ...]) -> Node:
    return indexing.fit(x, shape, dtype)


epoch.tensor_type = Tensor
calls.tensor_of_array = creation.tensor
