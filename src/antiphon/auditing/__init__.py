"""Attacks on what is certified: lower bounds on ε from real runs, beside the proved upper bound."""

from antiphon.auditing.attack import Attack
from antiphon.auditing.black_box import black_box, losses_of
from antiphon.auditing.bounds import (
    TradeOffBand,
    binomial_lower,
    binomial_upper,
    epsilon_from_rates,
    mu_from_guesses,
    trade_off_band,
)
from antiphon.auditing.curve import AbstractCurve, GaussianCurve, PointCurve, ProfileCurve
from antiphon.auditing.instance import Instance, canaries, worst_case, worst_row
from antiphon.auditing.neuron import train_neuron
from antiphon.auditing.one_run import one_run
from antiphon.auditing.one_run_bounds import (
    epsilon_from_one_run,
    guesses_for,
    is_refuted,
    mu_from_one_run,
)
from antiphon.auditing.planting import Planted, mislabelled, plant
from antiphon.auditing.report import AuditReport, audit
from antiphon.auditing.result import Audit
from antiphon.auditing.tracing import Tracing, trace, tracing_scores
from antiphon.auditing.trainer import Trainer, Transcript, train
from antiphon.auditing.two_world import Worlds, play, two_world
from antiphon.auditing.whiteness import Whiteness, whiteness

__all__ = [
    "AbstractCurve",
    "Attack",
    "Audit",
    "AuditReport",
    "GaussianCurve",
    "Instance",
    "Planted",
    "PointCurve",
    "ProfileCurve",
    "Tracing",
    "TradeOffBand",
    "Trainer",
    "Transcript",
    "Whiteness",
    "Worlds",
    "audit",
    "binomial_lower",
    "binomial_upper",
    "black_box",
    "canaries",
    "epsilon_from_one_run",
    "epsilon_from_rates",
    "guesses_for",
    "is_refuted",
    "losses_of",
    "mislabelled",
    "mu_from_guesses",
    "mu_from_one_run",
    "one_run",
    "plant",
    "play",
    "trace",
    "tracing_scores",
    "trade_off_band",
    "train",
    "train_neuron",
    "two_world",
    "whiteness",
    "worst_case",
    "worst_row",
]
