"""Parameters given as probabilities or as logits: the other one is computed when it is needed."""

from __future__ import annotations

from typing import Any

from tilewright.ir.location import at_user_line
from tilewright.ir.shape import Size

from .. import Tensor
from .distribution import Distribution
from .utils import lazy_property, logits_to_probs, probs_to_logits


def one_of(probs: Any, logits: Any) -> tuple[str, Any]:
    """The name and the value of the one parameter that is given; ValueError for both or none."""
    if (probs is None) == (logits is None):
        raise ValueError(
            f"Either `probs` or `logits` must be specified, but not both.{at_user_line()}"
        )
    return ("logits", logits) if probs is None else ("probs", probs)


class Odds(Distribution):
    """A distribution of `probs`, or `logits`, of two outcomes."""

    @property
    def _param(self) -> Tensor:
        """The parameter that there is."""
        known = self.__dict__
        found: Tensor = known["probs"] if "probs" in known else known["logits"]
        return found

    @property
    def param_shape(self) -> Size:
        return self._param.size()

    @lazy_property
    def logits(self) -> Tensor:
        return probs_to_logits(self.probs, is_binary=True)

    @lazy_property
    def probs(self) -> Tensor:
        return logits_to_probs(self.logits, is_binary=True)
