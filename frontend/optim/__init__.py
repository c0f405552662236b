"""torch.optim: optimizers, each step of a parameter group one record."""

import importlib
from typing import TYPE_CHECKING

from .. import paths
from . import lr_scheduler
from .adadelta import Adadelta
from .adafactor import Adafactor
from .adagrad import Adagrad
from .adam import Adam, AdamW
from .adamax import Adamax
from .asgd import ASGD
from .lbfgs import LBFGS
from .muon import Muon
from .nadam import NAdam
from .optimizer import Optimizer
from .radam import RAdam
from .rmsprop import RMSprop
from .rprop import Rprop
from .sgd import SGD
from .sparse_adam import SparseAdam

if TYPE_CHECKING:
    from . import swa_utils

__all__ = [
    "Adadelta", "Adafactor", "Adagrad", "Adam", "Adamax", "AdamW", "ASGD", "LBFGS",
    "lr_scheduler", "Muon", "NAdam", "Optimizer", "RAdam", "RMSprop", "Rprop", "SGD", "SparseAdam",
    "swa_utils",
]  # fmt: skip

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name == "swa_utils":  # it needs torch.nn
            return importlib.import_module(".swa_utils", __name__)
        return paths.found(__name__, name)
