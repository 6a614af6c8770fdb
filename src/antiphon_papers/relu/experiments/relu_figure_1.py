"""Training losses of private ReLU regression on real tables over passes, as printed and at a correct ε.

Figure 1 of [ReLURegression25] shows California Housing, gas turbines (it does not say whether CO or NOx:
both are here) and white wine, nominal ε = 0.05, 0.2, 0.5. Methods "as printed" have its learning rates,
batches of 32 or 1, 500 passes (100 for single records, which is enough to see) and the noise that its
theorems ask for one pass; the clip norm, which it does not give, is 1. In brackets stands the ε that all
passes really cost: 0.39, 1.8, 5.2 on California for batches of 32. The others keep the nominal ε for all
they do, and clip directions at 0.1 sqrt(d), d features. δ = N^-1.1, replace-one. Features are
standardised and targets scaled by the whole table, as in the paper: those constants are taken to be
public. Training losses are covered by no certificate; the tables are public.

Seen in two splits: as printed, DP-MBGLMtron is mostly below DP-SGD, but nothing learns at ε = 0.05; DP-
SGD's neuron becomes inactive on the gas turbines; with noise for 500 passes it diverges. Full batches at a
correct ε = 0.05 have training losses of 0.0116, 0.00060, 0.0029 and 0.0087 on California, CO, NOx and wine,
where least squares has 0.0092, 0.00057, 0.0023 and 0.0035.
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
    """Training losses."""
    return draw(rows, "train_loss")
