"""torch.quasirandom: Sobol's sequences, by SciPy's generator of their points."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tilewright.ir.location import at_user_line

from . import recording
from .functions import from_data, generator

if TYPE_CHECKING:
    from tilewright.ir.dtype import DType

    from ._tensor import Tensor

__all__ = ["SobolEngine"]


class SobolEngine:
    """Points that fill the unit cube of `dimension` (up to 21,201) evenly, in a fixed order.

    scramble: whether the points are shifted and permuted at random, which keeps them even; `seed`
    chooses how, or torch's generator does. The directions are those of Joe and Kuo. SciPy is
    needed. Scrambled points are not PyTorch's, as SciPy draws them.
    """

    MAXBIT = 30
    MAXDIM = 21201

    def __init__(self, dimension: int, scramble: bool = False, seed: int | None = None):
        if not 1 <= dimension <= self.MAXDIM:
            raise ValueError(
                f"Supported range of dimensionality for SobolEngine is [1, {self.MAXDIM}], got "
                f"{dimension}{at_user_line()}"
            )
        self.dimension, self.scramble, self.seed = dimension, scramble, seed
        self.num_generated = 0
        try:
            from scipy.stats import qmc
        except ImportError:
            raise ImportError(
                "torch.quasirandom.SobolEngine needs SciPy: install tilewright[linalg]"
            ) from None
        if scramble and seed is None:
            seed = generator.default_generator.initial_seed() & 0xFFFFFFFF
        self._points: Any = qmc.Sobol(dimension, scramble=scramble, bits=self.MAXBIT, seed=seed)

    def draw(self, n: int = 1, out: Tensor | None = None, dtype: DType | None = None) -> Tensor:
        """The next `n` points: [n, dimension]."""
        made = from_data.tensor(self._next(n), dtype=dtype or recording.default_dtype())
        self.num_generated += n
        if out is None:
            return made
        return out.resize_(made.shape).copy_(made)

    def _next(self, n: int) -> Any:
        import warnings

        with warnings.catch_warnings():  # SciPy asks for powers of two, PyTorch doesn't
            warnings.simplefilter("ignore", UserWarning)
            return self._points.random(n)

    def draw_base2(self, m: int, out: Tensor | None = None, dtype: DType | None = None) -> Tensor:
        """The next 2^m points. All points so far must be a power of two too."""
        n, total = 2**m, self.num_generated + 2**m
        if total & (total - 1):
            raise ValueError(
                "The balance properties of Sobol' points require that the total number is a power "
                f"of 2. {self.num_generated} points have been previously generated, then: "
                f"n={self.num_generated}+2**{m}={total}. If you still want to do this, please use "
                f"'SobolEngine.draw()' instead{at_user_line()}"
            )
        return self.draw(n, out, dtype)

    def reset(self) -> SobolEngine:
        """Begin again at the first point."""
        self._points.reset()
        self.num_generated = 0
        return self

    def fast_forward(self, n: int) -> SobolEngine:
        """Leave the next `n` points out."""
        if n:
            self._points.fast_forward(n)
        self.num_generated += n
        return self

    def __repr__(self) -> str:
        shown = [f"dimension={self.dimension}"]
        shown += ["scramble=True"] if self.scramble else []
        shown += [f"seed={self.seed}"] if self.seed is not None else []
        return f"{type(self).__name__}({', '.join(shown)})"
