"""Losses of GD and DP-GD on two-layer KANs, over width and over steps.

Figure 3 of [KANGradientDescent26]: the runs of ``kan-gd-figure-2``, whose description says what they are,
by their logistic loss. Runs that were made for that figure are in the cache and are not made again. The
dotted line is the loss of the best constant answer, the entropy of the commonest label's share. Training
losses are dashed: no certificate covers them, and the data are public or synthetic.

What was seen in small runs, the means of test losses for three truths of the synthetic data:

- Published noise, R = 1, η = 1: 0.720, 0.717, 0.718 for T = 16, 64, 256, all above the loss of a constant
  answer, at most log 2 = 0.693. GD has 0.716, 0.703, 0.676, and within the balls 0.716, 0.705, 0.702.
- R = 10, η = 8: published noise 0.704, 0.684, 0.681; adaptive 0.691, 0.664, 0.648; clipped 0.711, 0.678,
  0.681; GD 0.691, 0.660, 0.634. The loss of clipped runs turns where their accuracy still improves (from
  0.591 to 0.633).
- MNIST, T = 64, m = 32, one start: GD 0.388, adaptive 0.388, clipped 0.388, published noise 0.622 with
  R = 1 and η = 0.5; 0.039, 0.059, 0.040 and 0.289 with R = 10 and η = 8.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from antiphon.experiments.base import Row
from antiphon.experiments.gd_pictures import draw
from antiphon.experiments.gd_runs import Config, configs, run, summary

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Config", "configs", "plot", "run", "summary"]


def plot(rows: Sequence[Row]) -> "Figure":
    """Losses against m and T; that of the best constant answer is dotted."""
    return draw(rows, "loss", "constant_loss", "best constant answer")
