"""The steps of ``training.py`` in JAX-Privacy: JSON rows as last line.

Whole steps are compiled, on one core, with data in memory. KANs have splines by the recursion of Cox and
de Boor; incomplete batches are left out, since JAX compiles for each size.
"""

import os

os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # before JAX counts the cores

from collections.abc import Callable  # noqa: E402
from functools import partial  # noqa: E402
from typing import Any  # noqa: E402

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import optax  # noqa: E402
from jax_privacy import clipping, noise_addition  # noqa: E402
from jax_privacy.matrix_factorization import buffered_toeplitz  # noqa: E402
from training_timing import (  # noqa: E402
    Row,
    Step,
    chosen,
    dump,
    in_own_process,
    parser,
    peak,
    protocol_of,
    rows,
    timed,
)

RATE = 0.05
LARGEST = 1e9  # bytes of gradients of single examples, if all are formed at once
# The five buffers of ν-DP-FTRL's BLT for ν = 0.001 and 1000 steps, as in ``training.py``.
SCALES = (0.16367190, 0.16586962, 0.09003636, 0.04602648, 0.03129357)
DECAYS = (0.44228154, 0.84424370, 0.96473020, 0.99228393, 0.99842874)
N = {"mlp": 20_000, "cnn": 20_000, "text": 20_000, "kan-10": 20_000, "kan-784": 12_665}
VARIANTS = {  # size of a microbatch (None: all at once), and whether noise is correlated
    "independent": (None, False),
    "independent, microbatch 8": (8, False),
    "BLT, 5 buffers, microbatch 8": (8, True),
}


def _dense(p: Any, x: Any) -> Any:
    return x @ p["w"] + p["b"]


def _mlp(p: Any, x: Any) -> Any:
    return _dense(p["b"], jax.nn.relu(_dense(p["a"], x)))


def _conv(p: Any, x: Any, pad: int) -> Any:
    out = jax.lax.conv_general_dilated(x, p["w"], (2, 2), [(pad, pad)] * 2)
    return jax.nn.relu(out + p["b"][:, None, None])


def _pool(x: Any) -> Any:
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 1, 2, 2), (1, 1, 1, 1), "VALID")


def _cnn(p: Any, x: Any) -> Any:
    x = _pool(_conv(p["d"], _pool(_conv(p["c"], x, 3)), 0))
    return _mlp(p, x.reshape(len(x), -1))


def _text(p: Any, x: Any) -> Any:
    return _mlp(p, p["table"][x].mean(1))


def _splines(x: Any) -> Any:
    knots, x = jnp.arange(-3.0, 9.0) * 0.4 - 1.0, x[..., None]
    values = ((x >= knots[:-1]) & (x < knots[1:])).astype(x.dtype)
    for k in range(1, 4):
        left = (x - knots[: -k - 1]) / (knots[k:-1] - knots[: -k - 1])
        right = (knots[k + 1 :] - x) / (knots[k + 1 :] - knots[1:-k])
        values = left * values[..., :-1] + right * values[..., 1:]
    return values.reshape(*values.shape[:-2], -1)


def _kan(frozen: Any, p: Any, x: Any) -> Any:
    hidden = jnp.tanh(_splines(x) @ p / np.sqrt(x.shape[1]))
    return (_splines(hidden) @ frozen)[..., 0] / np.sqrt(32)


def _layer(*shape: int, fan_in: int, out: int) -> Any:
    w = np.random.default_rng(0).uniform(-1, 1, shape) / np.sqrt(fan_in)
    return {"w": jnp.asarray(w, jnp.float32), "b": jnp.zeros(out)}


def problem(case: str) -> tuple[Callable[..., Any], Any, tuple[Any, Any]]:
    """Mean loss of (parameters, x, y); start; data."""
    x: Any
    y: Any
    rng, n = np.random.default_rng(0), N[case]
    if case.startswith("kan"):
        d = int(case[4:])
        frozen = jnp.asarray(rng.normal(size=(256, 1)), jnp.float32)
        start = jnp.asarray(rng.normal(size=(8 * d, 32)), jnp.float32)
        model: Callable[..., Any] = partial(_kan, frozen)
        x = rng.uniform(-0.999, 0.999, (n, d))
        y = rng.integers(0, 2, n).astype(np.float32)

        def loss(p: Any, x: Any, y: Any) -> Any:
            return optax.sigmoid_binary_cross_entropy(model(p, x), y).mean()

        return loss, start, (jnp.asarray(x, jnp.float32), jnp.asarray(y))
    sizes = {"mlp": (784, 256, 10), "cnn": (512, 32, 10), "text": (16, 16, 2)}[case]
    parameters: Any = {
        "a": _layer(sizes[0], sizes[1], fan_in=sizes[0], out=sizes[1]),
        "b": _layer(sizes[1], sizes[2], fan_in=sizes[1], out=sizes[2]),
    }
    x = rng.uniform(-0.999, 0.999, {"mlp": (n, 784), "cnn": (n, 1, 28, 28)}.get(case, (1,)))
    x = x.astype(np.float32)
    if case == "cnn":
        parameters |= {
            "c": _layer(16, 1, 8, 8, fan_in=64, out=16),
            "d": _layer(32, 16, 4, 4, fan_in=256, out=32),
        }
    if case == "text":
        parameters["table"] = jnp.asarray(rng.normal(size=(10_000, 16)), jnp.float32)
        x = rng.integers(0, 10_000, (n, 256)).astype(np.int32)
    network = {"mlp": _mlp, "cnn": _cnn, "text": _text}[case]

    def mean(p: Any, x: Any, y: Any) -> Any:
        return optax.softmax_cross_entropy_with_integer_labels(network(p, x), y).mean()

    y = rng.integers(0, sizes[2], n)
    return mean, parameters, (jnp.asarray(x), jnp.asarray(y))


def privatizer(is_correlated: bool) -> Any:
    key = jax.random.key(0)
    if not is_correlated:
        return noise_addition.gaussian_privatizer(stddev=1.0, prng_key=key)
    with jax.enable_x64(True):
        blt = buffered_toeplitz.BufferedToeplitz.build(DECAYS, SCALES)
        inverse = blt.inverse_as_streaming_matrix()
    return noise_addition.matrix_factorization_privatizer(inverse, stddev=1.0, prng_key=key)


def make(case: str, batch: int, variant: str) -> Step:
    loss, start, data = problem(case)
    state: Any = ()
    if variant == "plain":

        def gradient(p: Any, state: Any, x: Any, y: Any) -> Any:
            return jax.grad(loss)(p, x, y), state

    else:
        micro, is_correlated = VARIANTS[variant]
        clipped = clipping.clipped_grad(
            loss, l2_clip_norm=1.0, batch_argnums=(1, 2), microbatch_size=micro
        )
        noise = privatizer(is_correlated)
        state = noise.init(start)

        def gradient(p: Any, state: Any, x: Any, y: Any) -> Any:
            noisy, state = noise.update(clipped(p, x, y), state)
            return jax.tree.map(lambda g: g / batch, noisy), state

    @partial(jax.jit, donate_argnums=(0, 1))
    def step(p: Any, state: Any, data: Any, drawn: Any) -> Any:
        found, state = gradient(p, state, data[0][drawn], data[1][drawn])
        return jax.tree.map(lambda a, g: a - RATE * g, p, found), state

    rng, n = np.random.default_rng(0), len(data[0])
    parameters = jax.tree.map(jnp.array, start)
    place, order = 0, rng.permutation(n)

    def once() -> None:
        nonlocal parameters, state, place, order
        if place + batch > n:
            place, order = 0, rng.permutation(n)
        drawn = order[place : place + batch]
        place += batch
        parameters, state = jax.block_until_ready(step(parameters, state, data, drawn))

    return once


def variants(case: str, batch: int) -> list[str]:
    size = 4 * batch * sum(leaf.size for leaf in jax.tree.leaves(problem(case)[1]))
    fit = [name for name, (micro, _) in VARIANTS.items() if micro or size <= LARGEST]
    return ["plain", *fit]


def measure(case: str, batch: int, options: Any) -> list[Row]:
    names = variants(case, batch)
    times = timed({name: make(case, batch, name) for name in names}, protocol_of(options))
    memory = {}
    if not options.quick:
        for name in names:
            used = in_own_process((case, batch, name))
            if used is not None:
                memory[name] = used
    return rows("jax-privacy", case, batch, times, memory)


def memory_of(case: str, batch: int, variant: str) -> float:
    """Here compilation counts, too: its code and data stay."""

    def made() -> Step:
        step = make(case, batch, variant)
        step()
        return step

    jax.block_until_ready(problem(case))
    make("kan-10", 8, variant)()
    return peak(made)


def main() -> None:
    options = parser(__doc__).parse_args()
    if options.memory_of:
        case, batch, variant = options.memory_of
        print(memory_of(case, int(batch), variant))
        return
    dump(row for case, batch in chosen(options, N) for row in measure(case, batch, options))


if __name__ == "__main__":
    main()
