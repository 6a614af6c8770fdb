"""Audits of every mechanism under every sampling that can be certified, as Markdown tables.

    python benchmarks/audit.py [ratios|matrix] [--jobs 2]

``ratios``: how much of a tight ε the audits find. ``matrix``: one run with canaries in every cell, tested
at 99.9 % for all cells together; nothing may be above its certificate. The tables of docs/results/audit.md.
"""

import argparse
import time
from collections.abc import Iterator

import torch

import antiphon as ap
from antiphon.accounting import gaussian_mu
from antiphon.audits import one_run, two_world
from antiphon.errors import AntiphonError
from antiphon.mechanisms import (
    BLT,
    FFT,
    AbstractMechanism,
    Banded,
    BandedInverse,
    Dense,
    FullHonaker,
    Honaker,
    Independent,
    LambdaCGD,
    NuFTRL,
    Restarted,
    Tree,
)
from antiphon.plans import AbstractSampling

DELTA = 1e-5
T, N = 16, 20_000
MECHANISMS: dict[str, AbstractMechanism] = {
    "independent": Independent(),
    "λ-CGD(0.9)": LambdaCGD(0.9),
    "ν-FTRL(0.05)": NuFTRL(0.05),
    "tree": Tree(),
    "Honaker": Honaker(),
    "full Honaker": FullHonaker(),
    "FFT": FFT(),
    "banded(4)": Banded.square_root(4),
    "banded inverse": BandedInverse((1.0, -0.5, -0.125)),
    "BLT": BLT((0.4, 0.2), (0.9, 0.5)),
    "dense": Dense(NuFTRL(0.02).encoder(T)),
    "λ-CGD restarted": Restarted(LambdaCGD(0.9), 4),
}
SAMPLINGS: dict[str, tuple[AbstractSampling, str]] = {
    "full batch": (ap.FullBatch(), "add-remove"),
    "one pass": (ap.OnePass(N // T), "zero-out"),
    "one pass, replace-one": (ap.OnePass(N // T), "replace-one"),
    "shuffled, one order": (ap.ShuffledEpochs(N // 4), "zero-out"),
    "reshuffled": (ap.ShuffledEpochs(N // 4, reshuffle=True), "zero-out"),
    "balls in bins": (ap.BallsInBins(4), "add-remove"),
    "cyclic Poisson": (ap.CyclicPoisson(0.5, 4), "add-remove"),
    "Poisson": (ap.Poisson(0.25), "add-remove"),
    "fixed size": (ap.FixedSize(N // 4), "zero-out"),
}


def plan_of(mechanism: AbstractMechanism, sampling: AbstractSampling, relation: str) -> ap.Plan:
    """A plan whose unamplified ε is 8: what amplification earns is taken off."""
    plan = ap.Plan(n=N, sampling=sampling, steps=T, mechanism=mechanism, relation=relation)
    sensitivity = float(mechanism.sensitivity(T, plan.participation)) * plan.amplitude
    return plan.with_noise(sensitivity / gaussian_mu(8.0, DELTA))


def ratios(jobs: int) -> Iterator[str]:
    yield "| cell | ε | one run, 100,000 canaries | two worlds | runs | seconds |"
    yield "|---|---|---|---|---|---|"
    cells = {
        "full batch, λ-CGD(0.9), T = 2": (ap.FullBatch(), "add-remove", 2, LambdaCGD(0.9)),
        "one pass, ν-FTRL(0.05), T = 2": (ap.OnePass(50_000), "zero-out", 2, NuFTRL(0.05)),
    }
    for name, (sampling, relation, steps, mechanism) in cells.items():
        for epsilon, runs in ((1.0, 30_000), (4.0, 3000)):
            began = time.perf_counter()
            wide = ap.Plan(n=100_000, sampling=sampling, steps=steps, mechanism=mechanism,
                           relation=relation)  # fmt: skip
            one = one_run(certified(wide, epsilon), canaries=100_000)
            small = ap.OnePass(1) if isinstance(sampling, ap.OnePass) else sampling
            narrow = ap.Plan(n=steps, sampling=small, steps=steps, mechanism=mechanism,
                             relation=relation)  # fmt: skip
            two = two_world(certified(narrow, epsilon), runs=runs, jobs=jobs)
            seconds = time.perf_counter() - began
            yield f"| {name} | {epsilon:g} | {one.ratio:.2f} | {two.ratio:.2f} | {runs} | {seconds:.0f} |"


def certified(plan: ap.Plan, epsilon: float) -> ap.Certificate:
    return ap.certify(ap.calibrate(plan, epsilon, DELTA), DELTA)


def matrix() -> Iterator[str]:
    yield "| mechanism | batches | certified ε | audited ε | ratio | verdict | route |"
    yield "|---|---|---|---|---|---|---|"
    cells = len(MECHANISMS) * len(SAMPLINGS)
    strict = 1 - 0.001 / cells
    for name, (sampling, relation) in SAMPLINGS.items():
        for kind, mechanism in MECHANISMS.items():
            try:
                claim = ap.certify(plan_of(mechanism, sampling, relation), DELTA)
            except AntiphonError as error:
                yield f"| {kind} | {name} | refused: {str(error).splitlines()[0][:80]} | | | | |"
                continue
            found = one_run(claim, verdict_confidence=strict, canaries=N)
            yield (
                f"| {kind} | {name} | {claim.epsilon:.3f} | {found.audited_epsilon:.3f} "
                f"| {found.ratio:.2f} | {found.verdict} | {claim.route} |"
            )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", nargs="?", choices=("ratios", "matrix"), default="matrix")
    parser.add_argument("--jobs", type=int, default=1, help="processes for two-world runs")
    options = parser.parse_args()
    torch.set_num_threads(1)
    for line in ratios(options.jobs) if options.what == "ratios" else matrix():
        print(line, flush=True)


if __name__ == "__main__":
    main()
