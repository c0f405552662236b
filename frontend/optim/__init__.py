"""torch.optim: optimizers, each step of a parameter group one record."""

# ruff: noqa: F401 -- all of it is re-exported

from . import lr_scheduler
from .adagrad import Adagrad
from .adam import Adam, AdamW
from .optimizer import Optimizer
from .rmsprop import RMSprop
from .sgd import SGD


def __getattr__(name: str) -> object:
    raise AttributeError(
        f"tilewright.optim has no {name!r}: it is not a name of PyTorch's, or not implemented yet"
    )
