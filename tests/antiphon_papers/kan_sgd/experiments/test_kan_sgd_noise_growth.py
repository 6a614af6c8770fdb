import pytest

from antiphon_papers.kan_sgd.experiments.kan_sgd_noise_growth import (
    Config,
    configs,
    growth,
    run,
    summary,
)


@pytest.mark.parametrize("lam", [0.0, 0.5, 0.9])
def test_what_the_mechanism_adds_follows_the_curve(lam):
    rows = run(Config(2.0, lam, steps=200, rate=1.0))
    assert (rows[0]["step"], rows[-1]["step"]) == (1, 200)
    for row in rows:  # 4000 coordinates: five standard errors are 5.6 %
        assert row["measured"] == pytest.approx(row["theory"], rel=0.056)
        assert row["theory"] == growth(row["noise_multiplier"], lam, row["step"])


def test_a_wrong_curve_would_be_seen():
    last = run(Config(2.0, 0.5, steps=200, rate=1.0))[-1]
    assert abs(last["measured"] / growth(last["noise_multiplier"], 0.45, 200) - 1) > 0.056


def test_the_table_has_one_row_for_each_epsilon_and_lambda():
    rows = [row for config in configs("ci", 2) for row in run(config)]
    table = summary(rows)
    assert [(row["lam"], row["runs"]) for row in table] == [(0.0, 2), (0.5, 2)]
    assert all(row["theory"] == growth(row["noise_multiplier"], row["lam"], 16) for row in table)


@pytest.mark.parametrize(
    ("noises", "expected"),
    [
        ((2.3826, 4.68, 22.9), (75.3, 74.1, 75.8)),
        ((1.4147, 2.58, 12.4), (44.7, 40.9, 41.2)),
        ((0.9592, 1.53, 7.00), (30.3, 24.2, 23.2)),
        ((0.5858, 0.75, 2.72), (18.5, 11.9, 9.0)),
    ],
)
def test_acceptance_kan_correlated_table_of_summed_noise(noises, expected):
    found = [growth(k, lam, 1000) for k, lam in zip(noises, (0.0, 0.5, 0.9), strict=True)]
    assert found == pytest.approx(expected, rel=3e-3)  # noises have three digits
