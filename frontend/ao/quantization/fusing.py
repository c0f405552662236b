"""fuse_modules: layers that follow each other become one module."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

from tilewright.ir.location import at_user_line

from ... import nn
from ...nn.utils.fusion import fuse_conv_bn_eval, fuse_linear_bn_eval
from ..nn import intrinsic

_CONVS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
_WITH_RELU = (intrinsic.ConvReLU1d, intrinsic.ConvReLU2d, intrinsic.ConvReLU3d)
_NORMED = (intrinsic.ConvBn1d, intrinsic.ConvBn2d, intrinsic.ConvBn3d)
_BOTH = (intrinsic.ConvBnReLU1d, intrinsic.ConvBnReLU2d, intrinsic.ConvBnReLU3d)
_TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)


def _normed(is_qat: bool, layer: Any, norm: Any) -> Any:
    if layer.training != norm.training:
        raise AssertionError("Conv and BN both must be in the same mode (train or eval).")
    if not is_qat:
        of_linear = isinstance(layer, nn.Linear)
        return fuse_linear_bn_eval(layer, norm) if of_linear else fuse_conv_bn_eval(layer, norm)
    if norm.num_features != getattr(layer, "out_channels", getattr(layer, "out_features", None)):
        raise AssertionError("Output channel of Conv2d must match num_features of BatchNorm2d")
    if isinstance(layer, nn.Linear):
        return intrinsic.LinearBn1d(layer, norm)
    return _NORMED[_CONVS.index(type(layer))](layer, norm)


def _normed_with_relu(is_qat: bool, layer: Any, norm: Any, relu: Any) -> Any:
    if not is_qat:
        made = _normed(is_qat, layer, norm)
        return _WITH_RELU[_CONVS.index(type(layer))](made, relu)
    return _BOTH[_CONVS.index(type(layer))](layer, norm, relu)


def _plain(kind: Any) -> Callable[..., Any]:
    return lambda is_qat, *layers: kind(*layers)


_METHODS: dict[tuple[type, ...], Callable[..., Any]] = {
    (nn.Linear, nn.ReLU): _plain(intrinsic.LinearReLU),
    (nn.Linear, nn.BatchNorm1d): _normed,
    (nn.BatchNorm2d, nn.ReLU): _plain(intrinsic.BNReLU2d),
    (nn.BatchNorm3d, nn.ReLU): _plain(intrinsic.BNReLU3d),
}
for _conv, _norm, _relu in zip(_CONVS, _NORMS, _WITH_RELU, strict=True):
    _METHODS[_conv, nn.ReLU] = _plain(_relu)
    _METHODS[_conv, _norm] = _normed
    _METHODS[_conv, _norm, nn.ReLU] = _normed_with_relu
for _transposed, _norm in zip(_TRANSPOSED, _NORMS, strict=True):
    _METHODS[_transposed, _norm] = lambda is_qat, layer, norm: fuse_conv_bn_eval(layer, norm, True)


def is_fused(kinds: tuple[type, ...], whole: bool = True) -> bool:
    """Whether layers of these types become one module; or with `whole=False`, whether they do with
    others behind them."""
    if whole:
        return kinds in _METHODS
    return any(known[: len(kinds)] == kinds for known in _METHODS)


def fuse_known_modules(mod_list: Sequence[Any], is_qat: bool, **_: Any) -> list[Any]:
    """The fused module, and an Identity in the place of each other one."""
    kinds = tuple(map(type, mod_list))
    method = _METHODS.get(kinds)
    if method is None:
        raise AssertionError(f"did not find fuser method for: {kinds}{at_user_line()}")
    if is_qat and not all(m.training for m in mod_list):
        raise AssertionError("fuse_modules_qat only works on models in training mode")
    fused = method(is_qat, *mod_list)
    hooks_before, hooks_after = mod_list[0]._forward_pre_hooks, mod_list[-1]._forward_hooks
    for hook in list(hooks_before.values()):
        fused.register_forward_pre_hook(hook)
    for hook in list(hooks_after.values()):
        fused.register_forward_hook(hook)
    others = [nn.Identity() for _ in mod_list[1:]]
    for each in others:
        each.training = mod_list[0].training
    return [fused, *others]


def _fused(
    model: nn.Module, groups: Any, is_qat: bool, inplace: bool, fuser_func: Callable[..., Any]
) -> nn.Module:
    if not inplace:
        model = copy.deepcopy(model)
    groups = groups if all(isinstance(each, (list, tuple)) for each in groups) else [groups]
    for names in groups:
        made = fuser_func([model.get_submodule(name) for name in names], is_qat)
        for name, module in zip(names, made, strict=True):
            home, _, last = name.rpartition(".")
            setattr(model.get_submodule(home), last, module)
    return model


def fuse_modules(
    model: nn.Module,
    modules_to_fuse: Any,
    inplace: bool = False,
    fuser_func: Callable[..., Any] = fuse_known_modules,
    fuse_custom_config_dict: Any = None,
) -> nn.Module:
    """A model in which layers that follow each other are one: convolutions (or linear layers),
    batch norms and ReLUs, named in lists. Norms go into the weights, so the model must be in eval
    mode."""
    return _fused(model, modules_to_fuse, False, inplace, fuser_func)


def fuse_modules_qat(
    model: nn.Module,
    modules_to_fuse: Any,
    inplace: bool = False,
    fuser_func: Callable[..., Any] = fuse_known_modules,
    fuse_custom_config_dict: Any = None,
) -> nn.Module:
    """The same for a model in training mode, whose norms stay norms."""
    return _fused(model, modules_to_fuse, True, inplace, fuser_func)
