"""Gradient descent and DP-GD on two-layer CNNs: when noise helps, and what privacy costs."""

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
from antiphon.theory.cnn.setting import Setting
from antiphon.theory.cnn.simulation import Measurement, Simulation, simulate
from antiphon.theory.cnn.span import Span

__all__ = [
    "Descent",
    "Dynamics",
    "Fresh",
    "Lemma39",
    "Measurement",
    "RandomDP",
    "Realised",
    "Seen",
    "Setting",
    "Simulation",
    "Span",
    "Step",
    "Theorem3",
    "Tracker",
    "clip_inputs",
    "clipped_noise",
    "descend",
    "fresh_of",
    "gradient_descent",
    "joint_sensitivity",
    "lemma_39",
    "printed_descent",
    "random_dp",
    "realised",
    "simulate",
    "theorem_3",
]
