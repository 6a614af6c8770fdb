"""One case of ``optimize.py`` in JAX-Privacy: a JSON question as argument, a JSON answer as last line."""

import json
import sys
import tempfile
import time

import jax
import numpy as np

jax.config.update("jax_enable_x64", True)

from jax_privacy.matrix_factorization import buffered_toeplitz, dense, toeplitz  # noqa: E402


def main() -> None:
    question = json.loads(sys.argv[1])
    T = question["T"]
    answer: dict[str, object] = {}
    wall, cpu = time.perf_counter(), time.process_time()
    match question["family"]:
        case "banded":
            coef = toeplitz.optimize_banded_toeplitz(T, question["bands"])
            answer["column"] = np.asarray(coef, dtype=np.float64).tolist()
        case "blt":
            found = buffered_toeplitz.optimize(
                n=T, min_sep=question["apart"], max_participations=question["times"], error="mean"
            )
            answer["column"] = np.asarray(found.toeplitz_coefs(T), dtype=np.float64).tolist()
        case "dense":
            C = np.asarray(dense.optimize(T, epochs=question["times"]), dtype=np.float64)
            with tempfile.NamedTemporaryFile(suffix=".npy", delete=False) as file:
                np.save(file, np.tril(C))
            answer["C"] = file.name
    answer |= {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
