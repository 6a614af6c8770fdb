"""Test losses of private ReLU regression on real tables over passes, as printed and at a correct ε.

Figure 2 of [ReLURegression25]: the runs of ``relu-figure-1``, whose description says what they are, by
their loss on a fifth of the records. Runs that were made for that figure are in the cache and are not
made again. (One caption in the paper says "Blog Feedback" where it means wine.)

Seen in two splits: full batches at a correct ε = 0.05 have test losses of 0.0124, 0.00061, 0.0029 and
0.0098 on California, CO, NOx and wine, where least squares has 0.0095, 0.00058, 0.0023 and 0.0036, and
the best of the printed methods, at ε = 0.4 in truth, 14.7, 3.2, 3.5 and 160.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from antiphon_papers.common.experiment import Row
from antiphon_papers.relu.experiments.neuron_curves import Config, configs, run, summary
from antiphon_papers.relu.experiments.neuron_pictures import draw

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Config", "configs", "plot", "run", "summary"]


def plot(rows: Sequence[Row]) -> "Figure":
    """Test losses."""
    return draw(rows, "test_loss")
