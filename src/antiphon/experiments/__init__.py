"""The papers' figures and tables, each by one module, and what was added to them.

>>> from antiphon.experiments import experiments
>>> "kan-sgd-noise-growth" in experiments()
True
"""

from antiphon.experiments.base import Experiment, Row
from antiphon.experiments.catalogue import experiment, experiments
from antiphon.experiments.reproduce import Reproduction, reproduce

__all__ = ["Experiment", "Reproduction", "Row", "experiment", "experiments", "reproduce"]
