"""Gradient descent and DP-GD on two-layer CNNs: when noise helps, and what privacy costs.

For [CNNGradientDescent26]. `gradient_descent`, `printed_descent` and `descend` train a `TwoLayerCNN`;
`simulate` runs them on signal-and-noise data in few dimensions, with every coefficient exact.

>>> from antiphon.theory import cnn
>>> [condition.holds for condition in cnn.condition_2(cnn.Setting())].count(False)
7
"""

from antiphon.theory.cnn.conditions import (
    condition_1,
    condition_2,
    data_checks,
    proof_conditions,
    start_checks,
)
from antiphon.theory.cnn.decomposition import Tracker
from antiphon.theory.cnn.descent import (
    Descent,
    Step,
    clip_inputs,
    descend,
    gradient_descent,
    printed_descent,
)
from antiphon.theory.cnn.dynamics import Dynamics, Seen
from antiphon.theory.cnn.fresh import Fresh, fresh_of
from antiphon.theory.cnn.privacy import (
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
from antiphon.theory.cnn.reference import average_loss_bound, reference_filters
from antiphon.theory.cnn.sequences import HittingTime, lemma_14, lemma_15
from antiphon.theory.cnn.setting import Setting
from antiphon.theory.cnn.simulation import Measurement, Simulation, simulate
from antiphon.theory.cnn.span import Span
from antiphon.theory.cnn.times import (
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
from antiphon.theory.condition import Condition

__all__ = [
    "Condition",
    "Descent",
    "Dynamics",
    "Fresh",
    "GDTimes",
    "HittingTime",
    "Lemma39",
    "Measurement",
    "RandomDP",
    "Realised",
    "Seen",
    "Setting",
    "SignalGrowth",
    "Simulation",
    "Span",
    "Step",
    "Theorem3",
    "Tracker",
    "advised_noise",
    "average_loss_bound",
    "clip_inputs",
    "clipped_noise",
    "condition_1",
    "condition_2",
    "data_checks",
    "descend",
    "escape_time",
    "fresh_error_bound",
    "fresh_of",
    "gradient_descent",
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
    "simulate",
    "start_checks",
    "theorem_1",
    "theorem_2",
    "theorem_3",
]
