"""What the words of a pair of normals stand for, from the text of `antiphon.normals` alone."""

import math


def uniform(word, bits, number=float):
    """The midpoint, in (0, 1), that the word of a radius stands for."""
    return (number(word % 2**bits) + number(0.5)) / number(2) ** bits


def point(word, bits, cos=math.cos, sin=math.sin, quarter=math.pi / 4):
    """The point of the circle that the second word stands for."""
    digits = f"{word % 2**bits:0{bits}b}"
    t = quarter * int(digits[2:-1] + "1", 2) / 2 ** (bits - 2)
    first, second = (sin(t), cos(t)) if digits[-1] == "1" else (cos(t), sin(t))
    return (-1) ** int(digits[0]) * first, (-1) ** int(digits[1]) * second
