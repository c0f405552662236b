"""torch.optim: optimizers, each step of a parameter group one record."""

# ruff: noqa: F401 -- all of it is re-exported

import importlib

from . import lr_scheduler
from .adadelta import Adadelta
from .adagrad import Adagrad
from .adam import Adam, AdamW
from .adamax import Adamax
from .nadam import NAdam
from .optimizer import Optimizer
from .radam import RAdam
from .rmsprop import RMSprop
from .rprop import Rprop
from .sgd import SGD


def __getattr__(name: str) -> object:
    if name == "swa_utils":  # it needs torch.nn
        return importlib.import_module(".swa_utils", __name__)
    raise AttributeError(
        f"tilewright.optim has no {name!r}: it is not a name of PyTorch's, or not implemented yet"
    )
