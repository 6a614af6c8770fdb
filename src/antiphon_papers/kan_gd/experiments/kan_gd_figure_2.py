"""Accuracy of GD and DP-GD on two-layer KANs, over width and over steps.

Figure 2 of [KANGradientDescent26]: its GD rises with the width to about m = 24 and with T to about 256; its
DP-GD at ε = 2 peaks near m = 64 and T = 64 (synthetic data) and near m = 8 and T = 64 (MNIST's 0 and 1).
No numbers are printed, nor the activation, the knots, which of three forms of the noise was used, or
whether the radius 1 is that of a ball. Here: tanh, cubic splines, T = 100 while m varies and m = 32 while T
does, the noise of the main text, and balls whose radius R is a free parameter: R = 1 with the published
step size, and R = 10 with η = 8, which is ours. Five curves in each panel: GD; GD within the same balls;
Theorem 4.14's noise ("literal", within the balls); the least noise for unclipped gradients ("adaptive") and
clipped examples, both exact for ε = 2 and without balls. Accuracies on training data are dashed: no
certificate covers them, and the data are public or synthetic. Each row has the certificate's own ε beside
the claimed 2.

What is seen in ``full``, the means of ten truths of the synthetic data (commonest label 0.569) and of four
starts on MNIST; errors and tables are in docs/results/kan.md:

- Published noise, R = 1, η = 1: no peak. Test accuracy is 0.534, 0.539, 0.536, 0.528 for T = 16, 64, 256,
  1024 and 0.554, 0.537, 0.508, 0.541 for m = 1, 4, 16, 64, below that of the commonest label. Balls and few
  small steps are enough for that: GD itself has 0.559 at T = 64, GD in the balls stays at 0.558 from
  T = 128 on, and neither rises with m.
- R = 10, η = 8: a maximum of the published noise at T = 128 (0.554, 0.582, 0.590, 0.584, 0.557 for T = 16,
  64, 128, 256, 1024) and at m = 32 (0.566, 0.575, 0.592, 0.576 for m = 1, 4, 32, 128). Adaptive noise has
  0.634 at T = 256, its maximum; clipped noise rises to 0.655 at T = 1024, as GD does. Over m these are flat
  to 0.01 from m = 4 on.
- The published noise has a certified ε of 0.38 to 0.42, where it claims 2. Its theorem is false in general
  (`antiphon_papers.kan_gd`), but with these radii it errs on the side of noise.
- MNIST, published noise with R = 1 and η = 0.5: 0.50 to 0.66 for m = 1 to 64, each with an error of 0.05 to
  0.13: the start decides, and no peak at m = 8 can be told. Balls alone, without noise, have 0.77 to 0.83
  from m = 2 on, adaptive and clipped runs 0.96 to 0.98 as GD has. With R = 10 and η = 8 the published noise
  rises with m from 0.66 to 0.97; clipped runs have 0.995 to 0.997.
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
    """Accuracies against m and T; the commonest label is dotted."""
    return draw(rows, "accuracy", "majority", "commonest label")
