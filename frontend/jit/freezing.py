"""freeze and optimize_for_inference: modules whose parameters have become constants."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

from tilewright.ir.location import at_user_line

from ..nn import Module
from ..recording import Handle
from .scripting import ScriptModule


def freeze(
    mod: Any, preserved_attrs: list[str] | None = None, optimize_numerics: bool = True
) -> Any:
    """A copy of a scripted module in evaluation mode, whose parameters and buffers are constants.

    It has no parameters and no state_dict any more. preserved_attrs: names of attributes that it
    keeps. The plans are those of the module: what depends on constants alone is computed once per
    run, fused with what reads it.
    """
    if not isinstance(mod, ScriptModule):
        raise RuntimeError(
            "Freezing expects a ScriptModule as input. Please use torch.jit.script or "
            f"torch.jit.trace to script your 'nn.Module'.{at_user_line()}"
        )
    if mod.training:
        raise RuntimeError(
            "Freezing is currently only implemented for modules in eval mode. Please call "
            f".eval() on your module before freezing.{at_user_line()}"
        )
    for name in preserved_attrs or ():
        try:
            attrgetter(name)(mod)
        except AttributeError:
            raise ValueError(f"torch.jit.freeze: the module has no attribute {name!r}") from None
    return _frozen(mod, set(preserved_attrs or ()), {})


def _frozen(module: Module, kept: set[str], memo: dict[int, Any]) -> Any:
    if id(module) not in memo:
        made = memo[id(module)] = object.__new__(type(module))
        state = dict(module.__dict__)
        state["_modules"] = {
            name: child and _frozen(child, _below(kept, name), memo)
            for name, child in module._modules.items()
        }
        state.update(state["_modules"])
        for kind in ("_parameters", "_buffers"):
            entries = getattr(module, kind)
            state[kind] = {n: v for n, v in entries.items() if n in kept}
            for name, value in entries.items():
                if name not in kept:
                    state[name] = value.detach() if isinstance(value, Handle) else value
        made.__setstate__(state)
    return memo[id(module)]


def _below(kept: set[str], name: str) -> set[str]:
    return {each[len(name) + 1 :] for each in kept if each.startswith(f"{name}.")}


def optimize_for_inference(mod: Any, other_methods: list[str] | None = None) -> Any:
    """The frozen module. Its plans are fused as all plans are, so nothing more is left to do."""
    if not isinstance(mod, ScriptModule):
        raise RuntimeError(
            "optimize_for_inference expects ScriptModule as input. Please use torch.jit.script or "
            f"torch.jit.trace to script your 'nn.Module'.{at_user_line()}"
        )
    if mod.training or not list(mod.parameters()):
        return mod
    return freeze(mod, other_methods)


def run_frozen_optimizations(
    mod: Any, optimize_numerics: bool = True, preserved_methods: list[str] | None = None
) -> None:
    """Nothing: what a plan computes is fused when it is compiled."""


__all__ = ["freeze", "optimize_for_inference", "run_frozen_optimizations"]
