import pytest
import torch
from torch.nn.functional import softplus

import antiphon as ap
from antiphon.errors import PlanError
from antiphon.mechanisms import LambdaCGD
from antiphon.training.ball import Ball
from antiphon_papers.common.two_layer_kan import TwoLayerKAN


def test_acceptance_kan_correlated_7_projection_of_a_private_run():
    torch.manual_seed(0)
    model = TwoLayerKAN(3, 8).double()
    x = torch.rand(60, 3).double() - 0.5
    y = torch.where(x.sum(1) > 0, 1.0, -1.0).double()
    optimizer = torch.optim.SGD([model.first.coef], lr=0.5)
    ball = Ball([model.first.coef], radius=1.5)
    run = ap.make_private(
        model,
        optimizer,
        (x, y),
        lambda model, x, y: softplus(-y * model(x)),
        plan=ap.Plan(
            n=60, sampling=ap.ShuffledEpochs(12), steps=30, mechanism=LambdaCGD(0.5),
            relation="zero-out", noise_multiplier=1.0,
        ),
        delta=1e-5,
        seed=1,
    )  # fmt: skip
    outside = 0
    for _ in run:
        outside += ball.distance > ball.radius
        ball()
        assert ball.distance <= 1.5 * (1 + 1e-12)
        once = model.first.coef.detach().clone()
        ball()  # idempotent: a point of the ball stays to the last bit, or moves by rounding alone
        torch.testing.assert_close(model.first.coef.detach(), once, rtol=1e-14, atol=1e-14)
    assert 0 < outside <= ball.active


def test_inside_nothing_moves_and_nothing_is_counted():
    w = torch.zeros(3)
    ball = Ball([w], 2.0)
    w += 1.0
    ball()
    assert w.tolist() == [1, 1, 1] and ball.active == 0


def test_several_parameters_share_one_ball_and_it_works_as_a_hook():
    parameters = [torch.zeros(2, requires_grad=True), torch.zeros(1, requires_grad=True)]
    optimizer, ball = torch.optim.SGD(parameters, lr=1.0), Ball(parameters, 1.0)
    optimizer.register_step_post_hook(ball)
    for parameter in parameters:
        parameter.grad = -torch.full_like(parameter, 3.0)
    optimizer.step()
    assert ball.active == 1 and ball.distance == pytest.approx(1.0, rel=1e-6)
    assert parameters[0].tolist() == pytest.approx([3**-0.5] * 2, rel=1e-6)


def test_a_ball_needs_a_radius():
    with pytest.raises(PlanError, match="radius must be positive and finite; got 0"):
        Ball([torch.zeros(1)], 0.0)
