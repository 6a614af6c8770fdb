"""Attack real runs of a plan, and compare what they prove of ε with what is certified.

python examples/audit_plan.py --runs 400
"""

import argparse
from pathlib import Path

import antiphon as ap
from antiphon.audits import audit
from antiphon.mechanisms import LambdaCGD


def main() -> None:
    """Calibrate, certify, attack."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=400, help="of the two-world audit; 0: none")
    parser.add_argument("--epsilon", type=float, default=4.0)
    parser.add_argument("--figure", type=Path, help="file for a picture")
    options = parser.parse_args()

    plan = ap.Plan(
        n=200,
        sampling=ap.ShuffledEpochs(batch=50),
        steps=12,
        mechanism=LambdaCGD(0.9),
        relation="zero-out",
    )
    plan = ap.calibrate(plan, options.epsilon, delta=1e-5)
    report = audit(ap.certify(plan, delta=1e-5), quick=True, runs=options.runs)
    print(report)
    print(f"certified {report.certificate.epsilon:.2f}, audited {report.audited_epsilon:.2f}")
    print(f"verdict: {report.verdict}")
    if options.figure:
        report.plot().savefig(options.figure)


if __name__ == "__main__":
    main()
