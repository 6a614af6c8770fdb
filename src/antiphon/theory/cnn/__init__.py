"""Gradient descent and DP-GD on two-layer CNNs: when noise helps, and what privacy costs."""

from antiphon.theory.cnn.descent import (
    Descent,
    Step,
    clip_inputs,
    descend,
    gradient_descent,
    printed_descent,
)
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

__all__ = [
    "Descent",
    "Lemma39",
    "RandomDP",
    "Realised",
    "Setting",
    "Step",
    "Theorem3",
    "clip_inputs",
    "clipped_noise",
    "descend",
    "gradient_descent",
    "joint_sensitivity",
    "lemma_39",
    "printed_descent",
    "random_dp",
    "realised",
    "theorem_3",
]
