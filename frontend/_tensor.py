"""Tensor: a handle of a value that may not be computed yet, with PyTorch's methods."""

from __future__ import annotations

import copy
import importlib
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, SupportsIndex, overload

import numpy as np

from tilewright.ir import ops
from tilewright.ir.dtype import DType
from tilewright.ir.location import at_user_line, warn
from tilewright.ir.node import Node
from tilewright.ir.shape import Size

from . import devices as device_module
from . import layouts, overriding, recording
from .autograd import leaves
from .autograd.grad_fn import GradFn
from .devices import device as Device
from .exchange import arrays, copies, numbers, resizing, storages
from .exchange.attributes import Attributes, TensorMeta, fields
from .exchange.pinning import is_pinned, pinned
from .functions import (
    arguments,
    complexes,
    conversions,
    creation,
    fitting,
    from_data,
    indexing,
    parts,
    queries,
    shapes,
)
from .recording import (
    Handle,
    at_once,
    calls,
    compounds,
    epoch,
    record,
    resolve,
    views,
    volatile,
)
from .recording.builders import builder
from .recording.roots import source_of

if TYPE_CHECKING:
    from typing_extensions import Self

    from .autograd.hooks import RemovableHandle
    from .types import DeviceLike, Number

if TYPE_CHECKING:
    from ._methods import Methods  # the methods of declared ops; tools/stubs.py writes them
else:
    Methods = Handle


class Tensor(Methods, metaclass=TensorMeta):
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
        return Attributes(fields(self))

    @__dict__.setter
    def __dict__(self, attributes: dict[str, Any]) -> None:
        own = Attributes(fields(self))
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

    if TYPE_CHECKING:
        grad: Tensor | None
        grad_dtype: DType | None
    else:
        grad = property(leaves.grad, leaves.set_grad, leaves.delete_grad)
        grad_dtype = property(leaves.grad_dtype, leaves.set_grad_dtype)

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Begin (or stop) to collect gradients in `.grad`."""
        leaves.set_requires_grad(self, requires_grad)
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
        return self._edge()[0]

    def _edge(self) -> tuple[GradFn, int]:
        node = resolve(self)
        history = None if self._chain is None else self._history
        if history is not None:  # an earlier epoch made this view
            return GradFn.edge(history.node, self._chain, history.ends())
        return GradFn.edge(node, self._chain)

    @property
    def output_nr(self) -> int:
        """Which of the results of the operation that computed this tensor it is."""
        return 0 if not self.requires_grad or self.is_leaf else self._edge()[1]

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

    def detach(self) -> Tensor:
        """The same memory without the history."""
        return recording.view(self, views.DETACH)

    def detach_(self) -> Self:
        """Forget how this tensor was computed."""
        leaves.detach(self)
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
        return arrays.numpy(self, force)

    __array_priority__ = 1000  # array + tensor is a tensor

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        arrays.refuse_gradients(self)
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
        return from_data.from_numpy(array.astype(np.uint8) if array.dtype == bool else array)

    def __dlpack__(self, **options: Any) -> Any:
        return arrays.to_dlpack(self, **options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)

    def item(self) -> Any:
        """The one element as a Python number."""
        number = arrays.element_of(self)
        return numbers.of(self) if number is None else number

    def tolist(self) -> Any:
        """The elements as nested lists of Python numbers."""
        return numbers.nested(self)

    def __bool__(self) -> bool:
        if self.numel() != 1:
            raise RuntimeError(
                "Boolean value of Tensor with "
                + ("no values" if self.numel() == 0 else "more than one value")
                + f" is ambiguous{at_user_line()}"
            )
        return bool(self.item())

    def __int__(self) -> int:
        return int(numbers.real(self, "int64_t"))

    def __float__(self) -> float:
        return float(numbers.real(self, "double"))

    def __index__(self) -> int:
        if self.dtype.is_differentiable or self.numel() != 1:
            raise TypeError("only integer tensors of a single element can be converted to an index")
        return int(self.item())

    def __complex__(self) -> complex:
        return complex(numbers.only(self).item())

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if self.dim() == 0 else super().__format__(spec)

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        from .exchange.printing import text

        return text(self, tensor_contents)

    def __iter__(self) -> Iterator[Tensor]:
        if not self.shape:
            raise TypeError("iteration over a 0-d tensor")
        return iter(parts.unbind(self, 0))

    def __reversed__(self) -> Tensor:
        """The rows in the opposite order."""
        return self.flip(0) if self.dim() else self

    def __contains__(self, element: Any) -> bool:
        if not isinstance(element, (Tensor, bool, int, float, complex, np.number)):
            raise RuntimeError(
                "Tensor.__contains__ only supports Tensor or scalar, but you passed in a "
                f"{type(element)}.{at_user_line()}"
            )
        equals: Any = self == element
        return bool(equals.any().item())

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
        return conversions.to(self, args, kwargs)

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
        return queries.dim_order(self, ambiguity_check)

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
        """A tensor of this tensor's type, made from data or of a size. A sparse tensor's is made of
        positions and elements."""
        from .functions import typed

        if self.is_sparse:
            made: Tensor = compounds.apply(typed.constructed, (self, data, options))
            return made
        _, dtype, device = self._typed()
        return typed.constructed(dtype, device, data, **options)

    def type_as(self, other: Tensor) -> Tensor:
        arguments.need_tensor("type_as", other, "other")
        return self.to(other)

    def new_tensor(self, data: Any, **options: Any) -> Tensor:
        if isinstance(data, Tensor):
            from_data.warn_of_copy("tensor.new_tensor")
            data = data.detach()._array()
        return from_data.tensor(data, **{"dtype": self.dtype, "device": self.device, **options})

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
        source = fitting.fitting(source, self.dtype)
        if at_once.overwritten(self, source):
            return self
        given = arguments.as_handle(source, self)
        if given.device != self.device:
            given = given.to(device=self.device, non_blocking=non_blocking)
        if volatile.wrote(self, given):
            return self
        return recording.assign(
            self, recording.node_of(_copied_value, given, self.dtype, tuple(self.shape))
        )

    def fill_(self, value: Tensor | Number) -> Self:
        return self.copy_(value)

    def zero_(self) -> Self:
        if at_once.overwritten(self, 0):
            return self
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
        shapes.fill_diagonal(self, fill_value, wrap)
        return self

    def resize_(self, *sizes: Any, memory_format: Any = None) -> Self:
        """Change the shape in place: see `exchange.resizing.resize`. New elements are zero, and lie
        in the order of the dimensions, whatever memory format is asked."""
        resizing.resize(self, Size(arguments.sizes(sizes, name="resize_")))
        return self

    def __delitem__(self, key: Any) -> None:
        raise TypeError("Tensor does not support deleting items")


@builder("copy_", gradient="ToCopyBackward0")
def _copied_value(x: Node, dtype: DType, shape: tuple[int, ...]) -> Node:
    return indexing.fit(x, shape, dtype)


epoch.tensor_type = Tensor
calls.tensor_of_array = from_data.tensor


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name == "_rebuild_from_type_v2":  # readers of PyTorch's files call it, Lightning's too
            home = importlib.import_module(f"{__package__}.serialization.rebuilding")
            return home.rebuild_typed
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
