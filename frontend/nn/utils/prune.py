"""Pruning: masks over parameters, which forget the weights that matter least.

A pruned parameter is trained as <name>_orig, and has the buffer <name>_mask. Before each call a
hook sets <name> to their product.
"""

from __future__ import annotations

import numbers
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

from tilewright.ir.location import at_user_line

from ...functions.creation import ones_like, zeros_like
from ...functions.joining import cat
from ...functions.sampling import rand, rand_like
from ..module import Module

Amount = int | float


def _check_amount(amount: Amount) -> None:
    if not isinstance(amount, numbers.Real):
        raise TypeError(f"Invalid type for amount: {amount}. Must be int or float.")
    integral = isinstance(amount, numbers.Integral)
    if amount < 0 or (not integral and amount > 1):
        raise ValueError(
            f"amount={amount} should either be a float in the range [0, 1] or a non-negative "
            "integer"
        )


def _count(amount: Amount, size: int) -> int:
    """How many of `size` parts an amount means."""
    if not isinstance(amount, numbers.Integral):
        return round(amount * size)
    if amount > size:
        raise ValueError(
            f"amount={amount} should be smaller than the number of parameters to prune={size}"
        )
    return int(amount)


def _check_structured(t: Any, dim: int) -> None:
    if t.dim() <= 1:
        raise ValueError(
            "Structured pruning can only be applied to multidimensional tensors. Found tensor of "
            f"shape {t.shape} with {t.dim()} dims"
        )
    if not -t.dim() <= dim < t.dim():
        raise IndexError(f"Invalid index {dim} for tensor of size {t.shape}")


class BasePruningMethod(ABC):
    """The base of pruning methods, each of which computes a mask.

    PRUNING_TYPE: 'unstructured', 'structured' (whole slices along `dim`) or 'global'. It says what
    of a tensor that is pruned already a further method looks at.
    """

    PRUNING_TYPE: str
    _tensor_name: str
    dim: int

    def __call__(self, module: Module, inputs: Any) -> None:
        setattr(module, self._tensor_name, self.apply_mask(module))

    @abstractmethod
    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        """The mask of `t`, within `default_mask`, which other methods left."""

    def apply_mask(self, module: Module) -> Any:
        """The parameter with its mask applied."""
        name = self._tensor_name
        original = getattr(module, f"{name}_orig")
        return getattr(module, f"{name}_mask").to(dtype=original.dtype) * original

    @classmethod
    def apply(
        cls, module: Module, name: str, *args: Any, importance_scores: Any = None, **kwargs: Any
    ) -> BasePruningMethod:
        """Prune module.<name>, further if it is pruned already. Returns the method."""
        method: Any = cls(*args, **kwargs)
        method._tensor_name = name
        earlier = None
        for number, hook in list(module._forward_pre_hooks.items()):
            if isinstance(hook, BasePruningMethod) and hook._tensor_name == name:
                earlier = hook
                del module._forward_pre_hooks[number]
        value = getattr(module, name)
        scores = value if importance_scores is None else importance_scores
        if scores.shape != value.shape:
            raise AssertionError(
                "importance_scores should have the same shape as parameter "
                f"{name} of {module}{at_user_line()}"
            )
        if earlier is None:
            module.register_parameter(f"{name}_orig", value)
            del module._parameters[name]
            default = ones_like(value.detach())
        else:
            default = getattr(module, f"{name}_mask").detach().clone()
            container: Any = earlier
            if not isinstance(earlier, PruningContainer):
                container = PruningContainer(earlier)
            container.add_pruning_method(method)
            method = container
        mask = method.compute_mask(scores.detach(), default)
        module.register_buffer(f"{name}_mask", mask)
        setattr(module, name, method.apply_mask(module))
        module.register_forward_pre_hook(method)
        return method

    def prune(self, t: Any, default_mask: Any = None, importance_scores: Any = None) -> Any:
        """A copy of `t` with this method's mask applied."""
        scores = t if importance_scores is None else importance_scores
        if scores.shape != t.shape:
            raise AssertionError("importance_scores should have the same shape as tensor t")
        default = ones_like(t) if default_mask is None else default_mask
        return t * self.compute_mask(scores, default_mask=default)

    def remove(self, module: Module) -> None:
        """Make the pruned values the parameter."""
        name = self._tensor_name
        value = self.apply_mask(module).detach()
        original = getattr(module, f"{name}_orig")
        delattr(module, name)
        del module._parameters[f"{name}_orig"], module._buffers[f"{name}_mask"]
        original.data = value
        module.register_parameter(name, original)


class PruningContainer(BasePruningMethod):
    """Methods that prune one parameter one after another."""

    def __init__(self, *args: Any) -> None:
        methods = args[0] if len(args) == 1 and isinstance(args[0], Iterable) else args
        self._pruning_methods: tuple[BasePruningMethod, ...] = ()
        if methods:
            self._tensor_name = next(iter(methods))._tensor_name
        for method in methods:
            self.add_pruning_method(method)

    def add_pruning_method(self, method: Any) -> None:
        if not isinstance(method, BasePruningMethod):
            raise TypeError(f"{type(method)} is not a BasePruningMethod subclass")
        if self._tensor_name != method._tensor_name:
            raise ValueError(
                "Can only add pruning methods acting on the parameter named "
                f"'{self._tensor_name}' to PruningContainer {self}. Found '{method._tensor_name}'"
            )
        self._pruning_methods += (method,)

    def __len__(self) -> int:
        return len(self._pruning_methods)

    def __iter__(self) -> Any:
        return iter(self._pruning_methods)

    def __getitem__(self, index: int) -> BasePruningMethod:
        return self._pruning_methods[index]

    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        """The mask of the last method, on what the ones before it left."""
        method = self._pruning_methods[-1]
        mask = default_mask.to(dtype=t.dtype)
        if method.PRUNING_TYPE == "global":
            return mask * method.compute_mask(t, default_mask=mask)
        if method.PRUNING_TYPE == "unstructured":
            left = mask == 1
            part = method.compute_mask(t[left], default_mask=mask[left])
            made = mask.clone()
            made[left] = part.to(dtype=made.dtype)
            return made
        dim = method.dim % t.dim()
        kept = mask.sum([d for d in range(t.dim()) if d != dim]) != 0
        index = kept.nonzero().squeeze(1)
        part = method.compute_mask(t.index_select(dim, index), mask.index_select(dim, index))
        return mask.index_copy(dim, index, part.to(dtype=mask.dtype))


class Identity(BasePruningMethod):
    """Keeps everything."""

    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        return default_mask


class _Unstructured(BasePruningMethod):
    """Prunes the elements that have the least scores."""

    PRUNING_TYPE = "unstructured"

    def __init__(self, amount: Amount) -> None:
        _check_amount(amount)
        self.amount = amount

    def _scores(self, t: Any) -> Any:
        raise NotImplementedError

    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        count = _count(self.amount, t.numel())
        mask = default_mask.clone()
        if count:
            least = self._scores(t).reshape(-1).topk(count, largest=False).indices
            mask = mask.reshape(-1).index_fill(0, least, 0).reshape(default_mask.shape)
        return mask


class RandomUnstructured(_Unstructured):
    """Prunes elements at random."""

    def _scores(self, t: Any) -> Any:
        return rand_like(t)


class L1Unstructured(_Unstructured):
    """Prunes the elements of the least magnitude."""

    def _scores(self, t: Any) -> Any:
        return t.abs()


class _Structured(BasePruningMethod):
    """Prunes the slices along `dim` that have the least scores."""

    PRUNING_TYPE = "structured"

    def __init__(self, amount: Amount, dim: int = -1) -> None:
        _check_amount(amount)
        self.amount, self.dim = amount, dim

    def _scores(self, t: Any) -> Any:
        raise NotImplementedError

    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        _check_structured(t, self.dim)
        size = t.shape[self.dim]
        count = _count(self.amount, size)
        if not count:
            return default_mask
        most = self._scores(t).topk(size - count).indices
        kept = zeros_like(t).index_fill(self.dim, most, 1)
        return default_mask.to(dtype=kept.dtype) * kept


class RandomStructured(_Structured):
    """Prunes slices along `dim` at random."""

    def _scores(self, t: Any) -> Any:
        return rand(t.shape[self.dim], device=t.device)


class LnStructured(_Structured):
    """Prunes the slices along `dim` of the least n-norm."""

    def __init__(self, amount: Amount, n: Any, dim: int = -1) -> None:
        super().__init__(amount, dim)
        self.n = n

    def _scores(self, t: Any) -> Any:
        axes = [d for d in range(t.dim()) if d != self.dim % t.dim()]
        return t.norm(self.n, axes)


class CustomFromMask(BasePruningMethod):
    """Prunes what a given mask has as zeros."""

    PRUNING_TYPE = "global"

    def __init__(self, mask: Any) -> None:
        self.mask = mask

    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        return default_mask * self.mask.to(dtype=default_mask.dtype)


def identity(module: Module, name: str) -> Module:
    """Give a parameter the form of a pruned one, with nothing pruned."""
    Identity.apply(module, name)
    return module


def random_unstructured(module: Module, name: str, amount: Amount) -> Module:
    """Prune `amount` elements (a share, if it is a float) at random."""
    RandomUnstructured.apply(module, name, amount)
    return module


def l1_unstructured(
    module: Module, name: str, amount: Amount, importance_scores: Any = None
) -> Module:
    """Prune the `amount` elements of the least magnitude, or of the least importance."""
    L1Unstructured.apply(module, name, amount, importance_scores=importance_scores)
    return module


def random_structured(module: Module, name: str, amount: Amount, dim: int) -> Module:
    """Prune `amount` slices along `dim` at random."""
    RandomStructured.apply(module, name, amount, dim)
    return module


def ln_structured(
    module: Module, name: str, amount: Amount, n: Any, dim: int, importance_scores: Any = None
) -> Module:
    """Prune the `amount` slices along `dim` of the least n-norm."""
    LnStructured.apply(module, name, amount, n, dim, importance_scores=importance_scores)
    return module


def custom_from_mask(module: Module, name: str, mask: Any) -> Module:
    """Prune what `mask` has as zeros."""
    CustomFromMask.apply(module, name, mask)
    return module


def global_unstructured(
    parameters: Iterable[tuple[Module, str]],
    pruning_method: type[BasePruningMethod],
    importance_scores: dict[tuple[Module, str], Any] | None = None,
    **kwargs: Any,
) -> None:
    """Prune parameters (module, name) together: those elements that matter least among all."""
    if not isinstance(parameters, Iterable):
        raise TypeError("global_unstructured(): parameters is not an Iterable")
    pairs = list(parameters)
    given = {} if importance_scores is None else importance_scores
    if not isinstance(given, dict):
        raise TypeError("global_unstructured(): importance_scores must be of type dict")
    values = [getattr(module, name) for module, name in pairs]
    scores = [given.get(pair, v) for pair, v in zip(pairs, values, strict=True)]
    masks = [getattr(module, f"{name}_mask", None) for module, name in pairs]
    before = [ones_like(v.detach()) if m is None else m for m, v in zip(masks, values, strict=True)]
    container = PruningContainer()
    container._tensor_name = "temp"
    method: Any = pruning_method(**kwargs)
    method._tensor_name = "temp"
    container.add_pruning_method(method)
    if method.PRUNING_TYPE != "unstructured":
        raise TypeError(
            'Only "unstructured" PRUNING_TYPE supported for the `pruning_method`. Found method '
            f"{pruning_method} of type {method.PRUNING_TYPE}"
        )
    flat = cat([s.detach().reshape(-1) for s in scores])
    mask = container.compute_mask(flat, cat([m.reshape(-1) for m in before]))
    start = 0
    for (module, name), value in zip(pairs, values, strict=True):
        count = value.numel()
        custom_from_mask(module, name, mask[start : start + count].reshape(value.shape))
        start += count


def remove(module: Module, name: str) -> Module:
    """Make the pruned values the parameter, and forget the mask."""
    for number, hook in list(module._forward_pre_hooks.items()):
        if isinstance(hook, BasePruningMethod) and hook._tensor_name == name:
            hook.remove(module)
            del module._forward_pre_hooks[number]
            return module
    raise ValueError(
        f"Parameter '{name}' of module {module} has to be pruned before pruning can be removed"
        f"{at_user_line()}"
    )


def is_pruned(module: Module) -> bool:
    """Whether a parameter of the module, or of one below it, is pruned."""
    return any(
        isinstance(hook, BasePruningMethod)
        for each in module.modules()
        for hook in each._forward_pre_hooks.values()
    )
