"""torch.backends: switches for the precision and the choice of kernels."""

from . import cuda as cuda
from . import cudnn as cudnn
from . import mps as mps
