"""Gradient descent and DP-GD on two-layer CNNs: when noise helps, and what privacy costs.

For [CNNGradientDescent26]. `gradient_descent`, `printed_descent` and `descend` train a `TwoLayerCNN`;
`simulate` runs them on signal-and-noise data in few dimensions, with every coefficient exact.

>>> from antiphon_papers import cnn
>>> [condition.holds for condition in cnn.condition_2(cnn.Setting())].count(False)
7
"""

from antiphon_papers.cnn.algorithm import (
    Descent,
    Step,
    clip_inputs,
    descend,
    gradient_descent,
    printed_descent,
)
from antiphon_papers.cnn.huberized import HuberizedReLU, huberized_relu, huberized_slope
from antiphon_papers.cnn.patches import SignalPatches, signal_patches
from antiphon_papers.cnn.printed import cnn_lemma_39
from antiphon_papers.cnn.privacy import (
    Lemma39,
    RandomDP,
    Realised,
    Theorem3,
    clipped_noise,
    joint_sensitivity,
    lemma_39,
    random_dp,
    realised,
    theorem_3,
)
from antiphon_papers.cnn.theory.conditions import (
    condition_1,
    condition_2,
    data_checks,
    proof_conditions,
    start_checks,
)
from antiphon_papers.cnn.theory.decomposition import Tracker
from antiphon_papers.cnn.theory.dynamics import Dynamics, Seen
from antiphon_papers.cnn.theory.fresh import Fresh, fresh_of
from antiphon_papers.cnn.theory.reference import average_loss_bound, reference_filters
from antiphon_papers.cnn.theory.sequences import HittingTime, lemma_14, lemma_15
from antiphon_papers.cnn.theory.setting import Setting
from antiphon_papers.cnn.theory.simulation import Measurement, Simulation, simulate
from antiphon_papers.cnn.theory.span import Span
from antiphon_papers.cnn.theory.times import (
    GDTimes,
    SignalGrowth,
    advised_noise,
    escape_time,
    fresh_error_bound,
    margin_to_noise,
    signal_growth,
    theorem_1,
    theorem_2,
)
from antiphon_papers.cnn.two_layer_cnn import TwoLayerCNN
from antiphon_papers.common.condition import Condition

__all__ = [
    "Condition",
    "Descent",
    "Dynamics",
    "Fresh",
    "GDTimes",
    "HittingTime",
    "HuberizedReLU",
    "Lemma39",
    "Measurement",
    "RandomDP",
    "Realised",
    "Seen",
    "Setting",
    "SignalGrowth",
    "SignalPatches",
    "Simulation",
    "Span",
    "Step",
    "Theorem3",
    "Tracker",
    "TwoLayerCNN",
    "advised_noise",
    "average_loss_bound",
    "clip_inputs",
    "clipped_noise",
    "cnn_lemma_39",
    "condition_1",
    "condition_2",
    "data_checks",
    "descend",
    "escape_time",
    "fresh_error_bound",
    "fresh_of",
    "gradient_descent",
    "huberized_relu",
    "huberized_slope",
    "joint_sensitivity",
    "lemma_14",
    "lemma_15",
    "lemma_39",
    "margin_to_noise",
    "printed_descent",
    "proof_conditions",
    "random_dp",
    "realised",
    "reference_filters",
    "signal_growth",
    "signal_patches",
    "simulate",
    "start_checks",
    "theorem_1",
    "theorem_2",
    "theorem_3",
]
