"""What the words of a pair of normals stand for, from the text of `antiphon.numerics.normals` alone."""

import math

import numpy as np


def uniform(word, more=None, number=float):
    """The number in (0, 1) that the word of a radius stands for, with 128 more bits if it is small."""
    digits = f"{word % 2**64:064b}"
    if word % 2**64 < 2**48:
        digits += f"{more:0128b}"
        first = min(digits.find("1") % 192, 128)
        digits = digits[: first + 64]
    return (number(int(digits, 2)) + number(0.5)) / number(2) ** len(digits)


def point(word, cos=math.cos, sin=math.sin, quarter=math.pi / 4):
    """The point of the circle that the second word stands for."""
    digits = f"{word % 2**64:064b}"
    t = quarter * int(digits[2:-1] + "1", 2) / 2**62
    first, second = (sin(t), cos(t)) if digits[-1] == "1" else (cos(t), sin(t))
    return (-1) ** int(digits[0]) * first, (-1) ** int(digits[1]) * second


def groups_of(radii, directions):
    """Words in groups; either kind may be a single one."""
    size = max(np.size(radii), np.size(directions))
    words = np.zeros((2, -(-size // 256) * 256), np.uint64)
    for row, some in zip(words, (radii, directions), strict=True):
        row[: np.size(some) if np.ndim(some) else None] = some
    return words.reshape(2, -1, 256).swapaxes(0, 1).reshape(-1).view(np.int64)
