"""torch._higher_order_ops.associative_scan: all prefixes of a chain, in log(length) rounds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.ir.location import at_user_line

from ..func import vmap
from ..functions.joining import cat, stack
from ..utils import _pytree as pytree

__all__ = ["associative_scan"]


def associative_scan(
    combine_fn: Callable[[Any, Any], Any],
    xs: Any,
    dim: int,
    reverse: bool = False,
    combine_mode: str = "pointwise",
) -> Any:
    """x₀, x₀ ∘ x₁, x₀ ∘ x₁ ∘ x₂, … along a dimension, from the end if `reverse`.

    xs: a tensor, or nested containers of tensors with equal sizes of `dim`. combine_fn: the
    associative operation ∘, of two elements (slices without `dim`) of the same nesting.
    combine_mode: "generic" for any function, "pointwise" for one of single numbers.

    Neighbours are joined in pairs, and the pairs' prefixes are those of every other element
    (Blelloch, Prefix sums and their applications, 1990).
    """
    if combine_mode not in ("pointwise", "generic"):
        raise ValueError(
            f"Combine_mode must either 'pointwise' or 'generic', but got {combine_mode}"
            f"{at_user_line()}"
        )
    leaves, spec = pytree.tree_flatten(xs)
    if not leaves:
        raise ValueError(f"associative_scan: expected at least one tensor{at_user_line()}")
    sizes = {x.shape[dim] for x in leaves}
    if len(sizes) > 1:
        raise ValueError(
            f"associative_scan: expected tensors with one size along dimension {dim}, got "
            f"{sorted(sizes)}{at_user_line()}"
        )

    def joined(left: list[Any], right: list[Any]) -> list[Any]:
        made = vmap(combine_fn)(
            pytree.tree_unflatten(left, spec), pytree.tree_unflatten(right, spec)
        )
        found, theirs = pytree.tree_flatten(made)
        if theirs != spec:
            raise ValueError(
                f"associative_scan: combine_fn got elements of the structure {spec} and returned "
                f"{theirs}{at_user_line()}"
            )
        return found

    chain = [x.movedim(dim, 0) for x in leaves]
    if reverse:
        chain = [x.flip(0) for x in chain]
    made = _prefixes(joined, chain)
    if reverse:
        made = [x.flip(0) for x in made]
    return pytree.tree_unflatten([x.movedim(0, dim) for x in made], spec)


def _prefixes(joined: Callable[[list[Any], list[Any]], list[Any]], chain: list[Any]) -> list[Any]:
    count = chain[0].shape[0]
    if count < 2:
        return chain
    even, odd = [x[::2] for x in chain], [x[1::2] for x in chain]
    pairs = joined([x[: count // 2] for x in even], odd)
    at_odd = _prefixes(joined, pairs)
    later = (count - 1) // 2  # even places behind the first
    at_even = [x[:1] for x in even]
    if later:
        rest = joined([x[:later] for x in at_odd], [x[1:] for x in even])
        at_even = [cat([first, x]) for first, x in zip(at_even, rest)]
    half = count // 2
    woven = [stack([a[:half], b], 1).flatten(0, 1) for a, b in zip(at_even, at_odd)]
    return [cat([w, a[half:]]) if count % 2 else w for w, a in zip(woven, at_even)]
