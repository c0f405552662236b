"""torch.backends: switches of what kernels may do."""

from . import cuda as cuda
from . import cudnn as cudnn
from . import mps as mps
