"""Linear regression of diffprivlib for `relu_losses.py`, in an environment of its own."""

import json
import sys
import warnings
from typing import Any

import numpy as np
from diffprivlib.models import LinearRegression


def main() -> None:
    path, text = sys.argv[1:]
    asked: dict[str, Any] = json.loads(text)
    data = np.load(path)
    x, y, x_test, y_test = (data[name] for name in ("x", "y", "x_test", "y_test"))
    x, x_test = x[:, :-1], x_test[:, :-1]  # it adds an intercept itself
    warnings.simplefilter("ignore")
    rows = []
    for epsilon in asked["epsilons"]:
        model = LinearRegression(
            epsilon=epsilon,
            bounds_X=(x.min(0), x.max(0)),
            bounds_y=(y.min(), y.max()),
            random_state=asked["seed"],
        )
        # Without regularisation its weights can be absurd: its answers are cut to the bounds it was given.
        out = np.clip(model.fit(x, y).predict(x_test), y.min(), y.max())
        loss = float(np.mean((out - y_test) ** 2) / 2)
        rows.append({"variant": "diffprivlib, linear", "epsilon": epsilon, "loss": loss})
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
