"""The decisions of a kernel's decorators, @triton.heuristics and @triton.autotune."""

from __future__ import annotations

import inspect
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tilewright.codegen.lower.external import Config, Site
from tilewright.ir.location import at_user_line
from tilewright.runtime import cache
from tilewright.runtime.results import place

from ..recording import Handle


@dataclass(frozen=True)
class Decision:
    """The choice of a config for a launch of an autotuned kernel.

    config: a triton.Config. origin: its source, for people. site: the tuner's key for results; None
        where nothing is tuned. candidates: the configs to choose from. Launches with equal values
        have equal configs, so comparisons leave the fields out.
    """

    config: Any = field(compare=False)
    origin: str
    site: Site | None
    candidates: tuple[Any, ...] = field(compare=False)


def decide(tuned: Any, named: Mapping[str, Any], given: Mapping[str, Any]) -> Decision:
    """Choose a config. named, given: the positional and the keyword arguments of the launch."""
    everything = {**named, **given}
    candidates = tuned.configs
    if tuned.early_config_prune:
        candidates = tuned.early_config_prune(candidates, named, **given)
    values = [everything[name] for name in tuned.keys if name in everything]
    tensors = [a for a in everything.values() if isinstance(a, Handle)]
    key = (*values, *[str(a.dtype) for a in everything.values() if hasattr(a, "dtype")])
    device = tensors[0]._typed()[2] if tensors else "cpu"
    site = _site(tuned, key, tensors) if device.startswith("cuda") else None
    config, origin = choose(tuned, key, candidates, site, device)
    return Decision(config, origin, site, tuple(candidates))


def choose(
    tuned: Any,
    key: tuple[Hashable, ...],
    candidates: Sequence[Any],
    site: Site | None,
    device: str,
) -> tuple[Any, str]:
    """The triton.Config for a launch of an autotuned kernel, and its origin.

    key: the values of the arguments that `tuned.keys` names, then the dtypes of the tensors. This
        is the key of `tuned.cache`, where a config may be pinned. Otherwise the tuner's choice for
        `site`, or for a similar site, is taken if it is among the candidates, and else the first
        candidate.
    """
    pinned = tuned.cache.get(key)
    if pinned is not None:
        return pinned, "pinned in its cache"
    if site is not None and place.exist():
        from tilewright.runtime.tuner import engines

        choice = engines.of_users(device).choice(site)
        if choice is not None:
            wanted = tuple(sorted(choice.options.items()))
            for config in candidates:
                if plain(config) == wanted:
                    return config, choice.text
    return candidates[0], "autotune: first config"


def plain(config: Any) -> Config:
    """A config as hashable data, for storage."""
    said = config.all_kwargs()
    if said.get("num_ctas") == 1:
        del said["num_ctas"]
    return tuple(sorted((name, _plain(value)) for name, value in said.items()))


def _plain(value: Any) -> Any:
    return value if isinstance(value, (bool, int, float, str, type(None))) else str(value)


def _site(tuned: Any, key: tuple[Hashable, ...], tensors: Sequence[Any]) -> Site:
    sizes = [value for value in key if type(value) is int]
    others = [value for value in key if type(value) is not int]
    shapes = [tuple(t.shape) for t in tensors]
    structure = f"{_about(tuned)}\n{others}\n{[len(shape) for shape in shapes]}"
    return Site(cache.digest(structure), (*sizes, *(n for shape in shapes for n in shape)))


_abouts: dict[Any, str] = {}


def _about(tuned: Any) -> str:
    """A hash of the kernel's text and of its configs."""
    found = _abouts.get(tuned)
    if found is None:
        function = tuned.fn
        while hasattr(function, "fn"):
            function = function.fn
        configs = [plain(config) for config in tuned.configs]
        text = inspect.getsource(function)
        found = _abouts[tuned] = cache.digest(f"{text}\n{tuned.keys}\n{configs}")
    return found


def settled(
    kernel: Any, args: Sequence[Any], kwargs: Mapping[str, Any], forced: Any = None
) -> tuple[Any, dict[str, Any], Decision | None]:
    """(the triton.JITFunction below the decorators, keyword arguments including the decorators',
    Decision for an autotuned kernel). forced: the config to take. Then there is no decision, and no
    hook touches the tensors."""
    from triton.runtime import Autotuner, JITFunction
    from triton.runtime.autotuner import Heuristics
    from triton.runtime.interpreter import InterpretedFunction

    given = dict(kwargs)
    decision = None
    while not isinstance(kernel, JITFunction):
        if isinstance(kernel, Heuristics):
            for name, rule in kernel.values.items():
                given[name] = rule({**dict(zip(kernel.arg_names, args)), **given})
            kernel = kernel.fn
        elif isinstance(kernel, Autotuner):
            named = dict(zip(kernel.arg_names, args))
            config = forced
            if config is None:
                decision = decide(kernel, named, given)
                config = decision.config
            _add(config, named, given, prepare=forced is None)
            kernel = kernel.fn
        elif isinstance(kernel, InterpretedFunction):  # under TRITON_INTERPRET=1
            kernel = _compiled(kernel)
        else:
            raise RuntimeError(
                "wrap_triton only works on functions annotated with triton.jit or triton.autotune, "
                f"got {type(kernel).__name__}{at_user_line()}"
            )
    return kernel, given, decision


def _add(config: Any, named: Mapping[str, Any], given: dict[str, Any], prepare: bool) -> None:
    """Add a config to the keyword arguments. prepare: whether to run its hook on the tensors."""
    twice = given.keys() & config.kwargs.keys()
    if twice:
        raise ValueError(
            f"{', '.join(sorted(twice))}: given at the launch, and by @triton.autotune"
            f"{at_user_line()}"
        )
    if prepare and config.pre_hook is not None:
        config.pre_hook({**named, **given, **config.all_kwargs()})
    given.update(config.all_kwargs())


_functions: dict[Any, Any] = {}


def _compiled(interpreted: Any) -> Any:
    """The JITFunction that @triton.jit would make without TRITON_INTERPRET=1."""
    from triton.runtime import JITFunction

    if interpreted.fn not in _functions:
        _functions[interpreted.fn] = JITFunction(interpreted.fn)
    return _functions[interpreted.fn]
