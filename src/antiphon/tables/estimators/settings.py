"""Settings that follow from public numbers alone: batch size, clip norm and learning rate.

Those of KANs were chosen once, on breast cancer, Adult, credit default and synthetic data at ε = 0.5, 1 and
8 (docs/results/kan.md); those of perceptrons and lines on the data below, among four to six lengths of a
step. They hold for every table: nothing is tuned on the data at hand. Accuracy on test records (R² for
diabetes) with declared bounds and all defaults, of one fit (breast cancer: mean of 8, diabetes: of 4):

    ======================  ======  ======  ========  ========  ======  ======
    ε = 1, ε = 8                  KAN            logistic             MLP
    ======================  ==============  ==================  ==============
    breast cancer           0.941   0.969   0.924     0.966     0.925   0.958
    Adult                   0.857   0.858   0.854     0.854     0.849   0.849
    synthetic_logistic      0.635   0.637   0.561     0.563     0.575   0.578
    diabetes                0.39    0.42                        0.39    0.43
    ======================  ======  ======  ========  ========  ======  ======

The last row but one is made for functions of single columns: no line can follow it. What hidden layers of
KANs need was chosen on promoters at ε = 0.5 to 8, all of it and the first 5000 rows; the ReLU neuron's
settings on diabetes, California housing, gas turbines, white wine and Gaussian records at ε = 1 and 8
(docs/estimators.md). All were chosen by the test records on which they are reported: on other tables expect
a little less.
"""

from typing import NamedTuple

from antiphon.plans import Plan

__all__ = [
    "DEEP_KAN_CLASSIFIER",
    "KAN_CLASSIFIER",
    "KAN_REGRESSOR",
    "LOGISTIC",
    "MLP_CLASSIFIER",
    "MLP_REGRESSOR",
    "RELU_REGRESSOR",
    "StepSize",
    "batch_for",
    "learning_rate_for",
    "noise_in_output",
]

_WORK = 300 * 2**20  # columns × examples of all batches: about 30 ms for one of 300, on one core


class StepSize(NamedTuple):
    """How far a step may go, for one kind of model.

    Attributes:
        longest: Largest move of the parameters in one step.
        most_noise: Largest standard deviation that the noise of all steps may leave in a parameter; for a
            regression in units of half the target's range.
        clip_norm: Bound on the gradient of one record.
        steps: How many. More of them see fewer records each, so that all take as long.
    """

    longest: float
    most_noise: float
    clip_norm: float = 0.3
    steps: int = 300


KAN_CLASSIFIER = StepSize(30.0, 5.0)
DEEP_KAN_CLASSIFIER = StepSize(12.0, 0.5, clip_norm=1.0, steps=900)
KAN_REGRESSOR = StepSize(0.5, 0.3)
LOGISTIC = StepSize(30.0, 10.0)
MLP_CLASSIFIER = StepSize(10.0, 5.0)
MLP_REGRESSOR = StepSize(0.6, 0.5)
RELU_REGRESSOR = StepSize(0.33, 0.33, clip_norm=0.06)


def batch_for(n: int, columns: int, steps: int = 300) -> int:
    """Half of the records, or as many as a step can take in about 30 ms (of more than 300 steps, in less).

    Large batches are the better ones as long as they are affordable: the noise of a whole run, at equal
    privacy, falls with the number of passes over the data, down to that of full batches.
    """
    return max(1, min(n // 2, _WORK // steps // columns))


def noise_in_output(plan: Plan) -> float:
    """Largest standard deviation of the summed noise of all steps, per unit of step length."""
    error = plan.known_mechanism().error(plan.steps, kind="max")
    return plan.known_noise() * error / plan.expected_batch


def learning_rate_for(plan: Plan, size: StepSize) -> float:
    """A step as long as the noise allows.

    Gradients are at most the clip norm C long, so a learning rate of s/C moves the parameters by at most s.
    s is a constant that suits these models, or less where the noise of all steps would dominate the output.

    Example:
        >>> from antiphon.mechanisms import Independent
        >>> from antiphon.plans import Poisson
        >>> small, large = (
        ...     Plan(n=n, sampling=Poisson(0.5), steps=100, clip_norm=0.5, mechanism=Independent(),
        ...          noise_multiplier=20.0) for n in (500, 50_000)
        ... )
        >>> learning_rate_for(small, KAN_CLASSIFIER), learning_rate_for(large, KAN_CLASSIFIER)
        (12.5, 60.0)
    """
    return min(size.longest, size.most_noise / noise_in_output(plan)) / plan.clip_norm
