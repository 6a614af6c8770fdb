"""Attacks on what is certified: lower bounds on ε from real runs, beside the proved upper bound."""

from antiphon.audits.attack import Attack
from antiphon.audits.audit_report import AuditReport, audit
from antiphon.audits.black_box import black_box, losses_of
from antiphon.audits.hypotheses import AbstractCurve, GaussianCurve, PointCurve, ProfileCurve
from antiphon.audits.instance import Instance, canaries, worst_case, worst_row
from antiphon.audits.neuron_trainer import train_neuron
from antiphon.audits.one_run import one_run
from antiphon.audits.one_run_bounds import (
    epsilon_from_one_run,
    guesses_for,
    is_refuted,
    mu_from_one_run,
)
from antiphon.audits.planting import Planted, mislabelled, plant
from antiphon.audits.result import Audit
from antiphon.audits.trainer import Trainer, Transcript, train
from antiphon.audits.trial_bounds import (
    TradeOffBand,
    binomial_lower,
    binomial_upper,
    epsilon_from_rates,
    mu_from_guesses,
    trade_off_band,
)
from antiphon.audits.two_world import Worlds, play, two_world
from antiphon.audits.whiteness import Whiteness, whiteness

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
    "trade_off_band",
    "train",
    "train_neuron",
    "two_world",
    "whiteness",
    "worst_case",
    "worst_row",
]
