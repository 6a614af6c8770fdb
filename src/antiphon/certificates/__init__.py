"""What is proved for a plan, as a user may quote it, and what several runs cost together: a ledger."""

from antiphon.certificates.certificate import NOISE, SEEDED, Certificate, certify, round_up
from antiphon.certificates.ledger import Entry, Ledger

__all__ = [
    "NOISE",
    "SEEDED",
    "Certificate",
    "Entry",
    "Ledger",
    "certify",
    "round_up",
]
