import copy
import json
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.exceptions import NotFittedError

from antiphon import reports
from antiphon.accounting import calibrate
from antiphon.certificates import Certificate
from antiphon.errors import PlanError
from antiphon.mechanisms import Independent
from antiphon.models import TableKAN
from antiphon.plans import GaussianRelease, Poisson
from antiphon.reports.noise_picture import noise_of
from antiphon.tables.data import Column, Schema
from antiphon.tables.estimators import PrivateKANClassifier


def described(estimator, **options):
    return reports.describe(estimator, table="t.csv", target="y", **options)


def changed(estimator, **attributes):
    """A copy with other attributes."""
    other = copy.copy(estimator)
    for name, value in attributes.items():
        setattr(other, name, value)
    return other


def test_a_report_is_json_and_holds_its_certificate_whole(classifier, report):
    again = json.loads(json.dumps(report, allow_nan=False))
    assert again == report
    found = Certificate.from_json(json.dumps(report["certificate"]))
    assert found == classifier.certificate_


def test_what_was_trained_is_said_with_its_columns(report):
    trained = report["trained"]
    assert trained["units"] == 300
    assert [column["from"] for column in trained["columns"]] == ["private", "private", "declared"]
    assert trained["columns"][2]["categories"] == ["yes", "no & never"]
    assert trained["target"]["classes"] == ["<b>well</b>", "ill"]
    assert trained["target"]["from"] == "the labels in the table"


def test_declared_bounds_are_called_declared_and_the_target_has_its_own(plain_report):
    trained = plain_report["trained"]
    assert {column["from"] for column in trained["columns"]} == {"declared"}
    assert trained["target"] == {
        "name": "pressure",
        "classes": None,
        "bounds": [80, 240],
        "from": "declared",
    }


def test_who_describes_may_say_where_bounds_come_from(regressor):
    found = described(regressor, bounds_from={"age": "census", "y": "textbook"})["trained"]
    assert found["columns"][0]["from"] == "census"
    assert found["target"]["from"] == "textbook"


def test_the_day_is_today_unless_given(regressor, plain_report):
    today = datetime.now(UTC).date().isoformat()
    assert described(regressor)["date"] in (today, datetime.now(UTC).date().isoformat())
    assert plain_report["date"] == "2026-01-31"


def test_no_seed_is_in_a_report(classifier):
    text = json.dumps(described(changed(classifier, random_state=918273645)))
    assert "918273645" not in text
    assert "random_state" not in text


def test_the_trade_off_curve_is_that_of_the_certificate(classifier, report):
    profile = classifier.certificate_.profile
    rates, found = np.array(report["trade_off"]).T
    assert rates[0] == 0
    assert rates[-1] == 1
    assert found.tolist() == [profile.true_positive(rate) for rate in rates]
    attacks = report["certificate"]["attacks"]
    # The best accuracy is that of the point farthest from the diagonal.
    assert 0.5 + 0.5 * (found - rates).max() == pytest.approx(attacks["accuracy"], abs=1e-3)


def test_noise_is_compared_at_the_noise_certified_for_each(classifier, report):
    plan, certificate = classifier.plan_, classifier.certificate_
    noise = report["noise"]
    beside = calibrate(
        replace(plan, mechanism=Independent(), noise_multiplier=None),
        certificate.epsilon,
        certificate.delta,
    )
    assert noise["independent"] == beside.noise_multiplier
    assert noise["taken_back"][:2] == [[1, 0.5], [2, 0.0]]
    # Σ_s ξ_s = z_t + (1 - λ)(z_1 + ... + z_{t-1}) for ξ_t = z_t - λ z_{t-1}
    for step, own, independent in noise["summed"]:
        wanted = plan.noise_multiplier * np.sqrt(1 + 0.25 * (step - 1))
        assert own == pytest.approx(wanted)
        assert independent == pytest.approx(beside.noise_multiplier * np.sqrt(step))


def test_independent_noise_is_compared_with_nothing(plain_report):
    noise = plain_report["noise"]
    assert noise["is_independent"]
    assert noise["taken_back"] == []
    assert noise["independent"] is None
    assert all(row[2] is None for row in noise["summed"])


def test_a_comparison_that_cannot_be_had_is_left_out(classifier):
    certificate = classifier.certificate_
    costly = replace(certificate.plan, extra=(GaussianRelease(50.0, "everything"),))
    noise = noise_of(replace(certificate, plan=costly))
    assert noise["independent"] is None
    assert noise["summed"][0][1] > 0


def test_functions_are_in_the_units_of_their_columns(classifier, report):
    assert report["functions"]["is_sum"]
    curves, levels = report["functions"]["groups"]
    bounds = {c.name: c.bounds for c in classifier.schema_.columns if c.kind == "number"}
    for item in curves["items"]:
        assert (item["x"][0], item["x"][-1]) == pytest.approx(bounds[item["name"]], rel=1e-5)
    assert curves["unit"] == levels["unit"] == "log-odds of state = ill"
    assert {item["name"] for item in levels["items"]} == {"smoker=yes", "smoker=no & never"}


def test_functions_add_up_to_the_prediction(classifier, report):
    curves, levels = report["functions"]["groups"]
    total = 0.0
    row = {"smoker": "yes"}
    for item in curves["items"]:  # at the middle of each column, which is one of the points
        middle = len(item["x"]) // 2
        row[item["name"]] = item["x"][middle]
        total += item["y"][0][middle]
    total += next(item["y"][0] for item in levels["items"] if item["name"] == "smoker=yes")
    table = pd.DataFrame([row])[list(classifier.schema_.names)]
    assert classifier.decision_function(table)[0] == pytest.approx(total, abs=1e-4)


def test_hidden_layers_are_shown_edge_by_edge(plain_report):
    functions = plain_report["functions"]
    assert not functions["is_sum"]
    titles = [group["title"] for group in functions["groups"]]
    assert titles == ["Layer 1", "Effect of each category", "Layer 2"]
    assert functions["groups"][-1]["unit"] == "pressure"
    assert all(" → " in item["name"] for item in functions["groups"][0]["items"])


def test_at_most_48_functions_are_kept_the_largest_first(regressor):
    schema = Schema(tuple(Column(f"x{i}", bounds=(0, 1)) for i in range(60)))
    model = TableKAN([True] * 60, columns=60, outputs=1)
    torch.nn.init.normal_(model.splines.coef, generator=torch.Generator().manual_seed(0))
    many = changed(regressor, schema_=schema, bounds=schema, model_=model)
    (group,) = described(many)["functions"]["groups"]
    assert len(group["items"]) == 48
    assert group["total"] == 60
    ranges = [np.ptp(item["y"][0]) for item in group["items"]]
    assert ranges == pytest.approx(sorted(ranges, reverse=True), rel=0.05)  # every second point
    assert "The 48 largest of 60." in reports.page(described(many))


def test_a_model_without_pictures_has_no_functions(regressor):
    found = described(changed(regressor, model_=torch.nn.Linear(4, 1)))
    assert found["functions"] == {"is_sum": False, "groups": []}
    assert "What it learned" not in reports.page(found)


def test_an_estimator_that_was_not_fitted_is_refused():
    with pytest.raises(NotFittedError):
        described(PrivateKANClassifier())


def test_no_guarantee_is_no_report(regressor):
    none = replace(regressor.certificate_, epsilon=float("inf"), attacks=None)
    with pytest.raises(PlanError, match="no guarantee"):
        described(changed(regressor, certificate_=none))


@pytest.mark.parametrize(
    ("evaluation", "reason"),
    [
        ({"kind": "secret", "rows": 1, "metrics": {}}, "'public' or 'paid'"),
        ({"kind": "public", "rows": 1}, "lacks \\['metrics'\\]"),
        ({"kind": "public", "rows": 1, "metrics": {}, "truth": []}, "unknown parts \\['truth'\\]"),
        (
            {
                "kind": "paid",
                "rows": 1,
                "metrics": {},
                "cost": "μ = 1",
                "pairs": {"bins": [[0, 0, 1]]},
            },
            "only its score is paid for",
        ),
        ({"kind": "paid", "rows": 1, "metrics": {"accuracy": 0.5}}, "pays for nothing of the kind"),
    ],
)
def test_an_evaluation_that_is_not_covered_is_refused(regressor, evaluation, reason):
    with pytest.raises(PlanError, match=reason):
        described(regressor, evaluation=evaluation)


def test_a_score_in_the_plan_is_paid(regressor):
    proved = regressor.certificate_
    plan = replace(proved.plan, extra=(GaussianRelease(0.1, "an accuracy"),))
    paid = changed(regressor, certificate_=replace(proved, plan=plan))
    score = {"kind": "paid", "rows": 30, "metrics": {"accuracy": 0.8}}
    assert "an accuracy: μ = 0.1" in reports.page(described(paid, evaluation=score))


def test_many_points_are_thinned_and_what_is_no_number_is_none(regressor):
    points = [[float(i), float(i)] for i in range(5000)]
    evaluation = {
        "kind": "public",
        "rows": 5000,
        "metrics": {"R²": float("nan")},
        "pairs": {"points": points},
    }
    found = described(regressor, evaluation=evaluation)["evaluation"]
    assert len(found["pairs"]["points"]) == 2000
    assert found["pairs"]["points"][-1] == [4999.0, 4999.0]
    assert found["metrics"] == {"R²": None}
    assert evaluation["pairs"]["points"] is points  # what was given is left as it was
    assert len(points) == 5000


def test_batches_by_coins_are_said_in_words(plain_report):
    text = reports.page(plain_report)
    assert "all of the data in every step" in text
    drawn = json.loads(json.dumps(plain_report))
    drawn["certificate"]["plan"]["sampling"] = Poisson(0.25).to_dict()
    assert "joins with probability 0.25" in reports.page(drawn)
