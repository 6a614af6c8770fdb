"""Logistic regression of diffprivlib for `accuracy.py`, in an environment of its own."""

import json
import math
import sys
import warnings
from typing import Any

import numpy as np
from diffprivlib.models import LogisticRegression


def main() -> None:
    path, text = sys.argv[1:]
    asked: dict[str, Any] = json.loads(text)
    data = np.load(path)
    x, y = data["x"].astype(float), data["y"]
    x_test, y_test = data["x_test"].astype(float), data["y_test"]
    warnings.simplefilter("ignore")
    rows = []
    for epsilon in asked["epsilons"]:
        for seed in range(asked["seeds"]):
            # A record's features are within [-1, 1], and a category has one indicator: so long at most.
            model = LogisticRegression(
                epsilon=epsilon, data_norm=math.sqrt(asked["columns"]), random_state=seed
            )
            accuracy = float(model.fit(x, y).score(x_test, y_test))
            rows.append(
                {
                    "variant": "diffprivlib logistic",
                    "epsilon": epsilon,
                    "seed": seed,
                    "accuracy": accuracy,
                }
            )
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
