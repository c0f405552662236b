"""torch.utils.data.datapipes: pipes of samples that are made of other pipes.

Those of one process are there. PyTorch has given up the rest: readers of archives and streams,
forks, and tables.
"""

from . import iter as iter
from . import map as map
