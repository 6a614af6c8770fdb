"""A fixed set of plans over all samplings, mechanisms and relations, and what is proved for each.

``python tests/oracles/golden_plans.py`` compares all with ``journeys/golden_certificates.json`` to the
last digit; with ``--write`` it writes the file anew. The commit then says which numbers changed, and why.
"""

import json
import os
import sys
import tempfile
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import antiphon as ap
from antiphon.errors import UnsupportedError
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
from antiphon.plans import Block, GaussianRelease, PureRelease

__all__ = ["FILE", "PLANS", "proved"]

FILE = Path(__file__).parents[1] / "journeys" / "golden_certificates.json"
STEPS, N, NOISE = 8, 64, 4.0
DELTA = 1e-3  # large, so that Monte Carlo takes little
SAMPLINGS = {
    "poisson": ap.Poisson(0.125),
    "fixed size": ap.FixedSize(8),
    "shuffled": ap.ShuffledEpochs(16),
    "reshuffled": ap.ShuffledEpochs(16, reshuffle=True),
    "bins": ap.BallsInBins(4),
    "cyclic": ap.CyclicPoisson(0.25, 2),
    "full": ap.FullBatch(),
    "one pass": ap.OnePass(8),
    "recorded": ap.Recorded([[step % 4, 4 + step % 3] for step in range(STEPS)]),
}
MECHANISMS: dict[str, AbstractMechanism] = {
    "ν = 0.05": NuFTRL(0.05),
    "buffered": NuFTRL(0.05).buffered(STEPS, buffers=2),
    "banded": Banded((1.0, 0.5)),
    "banded inverse": BandedInverse((1.0, -0.6, 0.1)),
    "blt": BLT((0.3, 0.2), (0.9, 0.4)),
    "dense": Dense(
        [[1.0] + [0.0] * 7, *([0.5**i] * i + [1.0] + [0.0] * (7 - i) for i in range(1, 8))]
    ),
    "tree": Tree(),
    "honaker": Honaker(),
    "full honaker": FullHonaker(),
    "fft": FFT(),
    "restarted": Restarted(LambdaCGD(0.5), 2),
}


def _plans() -> dict[str, ap.Plan]:
    plan = ap.Plan(
        n=N, sampling=ap.FullBatch(), steps=STEPS, mechanism=Independent(), noise_multiplier=NOISE
    )
    few: dict[str, AbstractMechanism] = {"independent": Independent(), "λ = 0.5": LambdaCGD(0.5)}
    found = {
        f"{sampling}, {mechanism}, {relation}": replace(
            plan, sampling=SAMPLINGS[sampling], mechanism=few[mechanism], relation=relation
        )
        for sampling, mechanism, relation in product(
            SAMPLINGS, few, ("add-remove", "zero-out", "replace-one")
        )
    }
    places = list(SAMPLINGS)
    for i, (name, mechanism) in enumerate(MECHANISMS.items()):
        sampling = places[i % len(places)]
        found[f"{sampling}, {name}, zero-out"] = replace(
            plan, sampling=SAMPLINGS[sampling], mechanism=mechanism, relation="zero-out"
        )
    found["blocks"] = replace(
        plan, blocks=(Block("inner", 0.5, 6.0), Block("outer", 1.0, 5.0)), noise_multiplier=None
    )
    found["users"] = replace(plan, unit="user", clip_norm=0.5)
    found["extra"] = replace(plan, extra=(GaussianRelease(0.1), PureRelease(0.2)))
    found["apart"] = replace(
        plan, sampling=ap.OnePass(8), relation="zero-out", apart=(GaussianRelease(0.3),)
    )
    found["Monte Carlo"] = replace(
        plan, sampling=ap.BallsInBins(8), mechanism=LambdaCGD(0.9), noise_multiplier=1.0
    )
    return found


PLANS = _plans()


def proved(plan: ap.Plan) -> dict[str, Any]:
    """What a certificate says in numbers; floats as hexadecimal text, so that no digit is lost."""
    try:
        found = ap.certify(plan, DELTA)
    except UnsupportedError:
        return {"refused": True}
    return {
        "epsilon": found.epsilon.hex(),
        "route": found.route,
        "theorem": found.theorem,
        "confidence": None if found.confidence is None else found.confidence.hex(),
        "is_tight": found.is_tight,
        "accuracy": None if found.attacks is None else found.attacks.accuracy.hex(),
        "assumptions": list(found.assumptions),
    }


def main() -> None:
    """Compare with the file, or write it."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["ANTIPHON_CACHE"] = folder
        found = {name: proved(plan) for name, plan in PLANS.items()}
    if "--write" in sys.argv:
        FILE.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    golden = json.loads(FILE.read_text())
    differing = [
        name for name in golden.keys() | found.keys() if golden.get(name) != found.get(name)
    ]
    print(f"{len(found)} plans, {len(differing)} differ: {sorted(differing)}")
    sys.exit(bool(differing))


if __name__ == "__main__":
    main()
