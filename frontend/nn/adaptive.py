"""A softmax over many classes whose rare ones are in clusters; Grave et al., arXiv 1609.04309."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from tilewright.ir.location import at_user_line

from ..functions.joining import cat
from . import functional as F
from .container import ModuleList, Sequential
from .linear import Linear
from .module import Module

if TYPE_CHECKING:
    from tilewright.ir.dtype import DType

    from .._tensor import Tensor
    from ..types import DeviceLike


class _ASMoutput(NamedTuple):
    output: Tensor
    loss: Tensor


_ASMoutput.__qualname__ = "ASMoutput"


class AdaptiveLogSoftmaxWithLoss(Module):
    """Log-probabilities of n_classes classes, sorted from frequent to rare.

    The head has the classes below cutoffs[0], and one entry for each cluster of rarer ones. Cluster
    i, from cutoffs[i] on, first projects its input to in_features / div_value^(i + 1) features.
    """

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        cutoffs: Sequence[int],
        div_value: float = 4.0,
        head_bias: bool = False,
        device: DeviceLike | None = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        cutoffs = list(cutoffs)
        if not cutoffs:
            raise ValueError("cutoffs should be a sequence of length larger than 0")
        rising = cutoffs == sorted(set(cutoffs)) and all(int(c) == c for c in cutoffs)
        if not rising or min(cutoffs) <= 0 or max(cutoffs) > n_classes - 1:
            raise ValueError(
                "cutoffs should be a sequence of unique, positive integers sorted in an increasing "
                "order, where each value is between 1 and n_classes-1"
            )
        where: dict[str, Any] = {"device": device, "dtype": dtype}
        self.in_features = in_features
        self.n_classes = n_classes
        self.cutoffs = [*cutoffs, n_classes]
        self.div_value = div_value
        self.head_bias = head_bias
        self.shortlist_size = cutoffs[0]
        self.n_clusters = len(self.cutoffs) - 1
        self.head_size = self.shortlist_size + self.n_clusters
        self.head = Linear(in_features, self.head_size, bias=head_bias, **where)
        self.tail = ModuleList()
        for i, (low, high) in enumerate(zip(self.cutoffs, self.cutoffs[1:], strict=False)):
            width = int(in_features // div_value ** (i + 1))
            self.tail.append(
                Sequential(
                    Linear(in_features, width, bias=False, **where),
                    Linear(width, high - low, bias=False, **where),
                )
            )

    def reset_parameters(self) -> None:
        self.head.reset_parameters()
        for projection, output in self.tail:  # type: ignore[misc,attr-defined]
            projection.reset_parameters()
            output.reset_parameters()

    def forward(self, input_: Tensor, target_: Tensor) -> _ASMoutput:
        """The log-probability of each target [n] (or []), for the input [n, in_features] (or
        [in_features]), and the mean of their negatives."""
        if target_.dim() not in (0, 1):
            raise RuntimeError(
                f"0D or 1D target tensor expected, multi-target not supported{at_user_line()}"
            )
        if target_.dim() == 1 and input_.shape[0] != target_.shape[0]:
            raise RuntimeError(
                "Input and target should have the same size in the batch dimension."
                f"{at_user_line()}"
            )
        if input_.dim() != target_.dim() + 1:
            wanted = "1D" if target_.dim() == 0 else "2D"
            raise RuntimeError(
                f"{target_.dim()}D target tensor expects {wanted} input tensors, but found inputs "
                f"with size {input_.shape}.{at_user_line()}"
            )
        alone = target_.dim() == 0
        x: Any = input_.unsqueeze(0) if alone else input_
        target: Any = target_.unsqueeze(0) if alone else target_
        if target.numel():
            least, most = target.min().item(), target.max().item()
            if least < 0 or most >= self.n_classes:
                raise RuntimeError(
                    f"Target values should be in [0, {self.n_classes - 1}], but values in range "
                    f"[{least}, {most}] were found.{at_user_line()}"
                )
        head_index = target
        rows: list[Any] = []
        places: list[Any] = []
        for i, (low, high) in enumerate(zip(self.cutoffs, self.cutoffs[1:], strict=False)):
            chosen = ((target >= low) & (target < high)).nonzero().squeeze(1)
            if not chosen.numel():
                continue
            cluster = F.log_softmax(self.tail[i](x.index_select(0, chosen)), dim=1)
            relative = (target - low).index_select(0, chosen)
            rows.append(cluster.gather(1, relative.unsqueeze(1)).squeeze(1))
            places.append(chosen)
            head_index = head_index.index_fill(0, chosen, self.shortlist_size + i)
        head = F.log_softmax(self.head(x), dim=1)
        output = head.gather(1, head_index.unsqueeze(1)).squeeze(1)
        if rows:
            output = output.index_add(0, cat(places), cat(rows))
        loss = (-output).mean()
        return _ASMoutput(output.squeeze(0) if alone else output, loss)

    def log_prob(self, input: Tensor) -> Tensor:
        """The log-probabilities [n, n_classes] of all classes for input[n, in_features]."""
        return self._all_log_prob(input, self.head(input))

    def _all_log_prob(self, input: Tensor, head_output: Tensor) -> Tensor:
        head = F.log_softmax(head_output, dim=1)
        parts = [head[:, : self.shortlist_size]]
        for i in range(self.n_clusters):
            cluster = F.log_softmax(self.tail[i](input), dim=1)
            parts.append(cluster + head[:, self.shortlist_size + i].unsqueeze(1))
        return cat(parts, 1)

    def predict(self, input: Tensor) -> Tensor:
        """The most probable class [n] for each row of input[n, in_features]."""
        return self.log_prob(input).argmax(dim=1)
