"""Losses of GD and DP-GD on two-layer KANs, over width and over steps.

Figure 3 of [KANGradientDescent26]: the runs of ``kan-gd-figure-2``, whose description says what they are,
by their logistic loss. Runs that were made for that figure are in the cache and are not made again. The
dotted line is the loss of the best constant answer, the entropy of the commonest label's share. Training
losses are dashed: no certificate covers them, and the data are public or synthetic.

What is seen in ``full``, means of test losses for ten truths of the synthetic data, four starts on MNIST:

- Published noise, R = 1, η = 1: 0.708, 0.704, 0.706, 0.712 for T = 16, 64, 256, 1024, all above the loss of
  a constant answer, at most log 2 = 0.693. GD has 0.705, 0.692, 0.669, 0.638, in the balls 0.691 at best.
- R = 10, η = 8: published noise 0.694, 0.676, 0.676, 0.697, best at T = 128 with 0.670; adaptive 0.682,
  0.656, 0.637, 0.655; clipped 0.709, 0.679, 0.667, 0.710, best at T = 128 with 0.664; GD 0.682, 0.654,
  0.625, 0.621. The loss of clipped runs turns where their accuracy still improves (from 0.626 to 0.655).
- MNIST, T = 64, m = 32: GD 0.398, adaptive 0.397, clipped 0.398, published noise 0.644 with R = 1 and
  η = 0.5; 0.041, 0.056, 0.041 and 0.287 with R = 10 and η = 8.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from antiphon_papers.common.experiment import Row
from antiphon_papers.kan_gd.experiments.gd_pictures import draw
from antiphon_papers.kan_gd.experiments.gd_runs import Config, configs, run, summary

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Config", "configs", "plot", "run", "summary"]


def plot(rows: Sequence[Row]) -> "Figure":
    """Losses against m and T; that of the best constant answer is dotted."""
    return draw(rows, "loss", "constant_loss", "best constant answer")
