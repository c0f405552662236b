"""What decorators above a kernel decide: @triton.heuristics and @triton.autotune."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from tilewright.ir.location import at_user_line


def choose(tuned: Any, key: tuple[Hashable, ...], candidates: Sequence[Any]) -> Any:
    """The triton.Config with which an autotuned kernel is launched.

    key: the values of the arguments that `tuned.keys` names, then the dtypes of the tensors, as in
    `tuned.cache`, where a config may be pinned. Without that it is the first of the candidates.
    """
    return tuned.cache.get(key, candidates[0])


def settled(kernel: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, dict]:
    """(the triton.JITFunction below the decorators, keyword arguments with what they add)."""
    from triton.runtime import Autotuner, JITFunction
    from triton.runtime.autotuner import Heuristics
    from triton.runtime.interpreter import InterpretedFunction

    given = dict(kwargs)
    while not isinstance(kernel, JITFunction):
        if isinstance(kernel, Heuristics):
            for name, rule in kernel.values.items():
                given[name] = rule({**dict(zip(kernel.arg_names, args)), **given})
            kernel = kernel.fn
        elif isinstance(kernel, Autotuner):
            _tune(kernel, args, given)
            kernel = kernel.fn
        elif isinstance(kernel, InterpretedFunction):  # under TRITON_INTERPRET=1
            kernel = _compiled(kernel)
        else:
            raise RuntimeError(
                "wrap_triton only works on functions annotated with triton.jit or triton.autotune, "
                f"got {type(kernel).__name__}{at_user_line()}"
            )
    return kernel, given


def _tune(tuned: Any, args: Sequence[Any], given: dict[str, Any]) -> None:
    """Adds the config of an autotuned kernel to the keyword arguments."""
    named = dict(zip(tuned.arg_names, args))
    everything = {**named, **given}
    candidates = tuned.configs
    if tuned.early_config_prune:
        candidates = tuned.early_config_prune(candidates, named, **given)
    values = [everything[name] for name in tuned.keys if name in everything]
    dtypes = [str(a.dtype) for a in everything.values() if hasattr(a, "dtype")]
    config = choose(tuned, (*values, *dtypes), candidates)
    twice = given.keys() & config.kwargs.keys()
    if twice:
        raise ValueError(
            f"{', '.join(sorted(twice))}: given at the launch, and by @triton.autotune"
            f"{at_user_line()}"
        )
    if config.pre_hook is not None:
        config.pre_hook({**everything, **config.all_kwargs()})
    given.update(config.all_kwargs())


_functions: dict[Any, Any] = {}


def _compiled(interpreted: Any) -> Any:
    """The function as @triton.jit makes it where Triton doesn't interpret everything."""
    from triton.runtime import JITFunction

    if interpreted.fn not in _functions:
        _functions[interpreted.fn] = JITFunction(interpreted.fn)
    return _functions[interpreted.fn]
