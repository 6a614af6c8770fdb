"""The binary tree over 2^h leaves, built node by node."""

import numpy as np

Node = tuple[int, int]  # height, and position among the nodes of that height


def nodes(T: int) -> list[Node]:
    """All nodes of the tree over the smallest 2^h >= T leaves that hold one of the first T steps."""
    height = (T - 1).bit_length()
    return [(i, j) for i in range(height + 1) for j in range(2 ** (height - i)) if j << i < T]


def tree(T: int) -> np.ndarray:
    """The encoder over all nodes: row n is 1 at the steps below node n."""
    rows = [[float(step >> i == j) for step in range(T)] for i, j in nodes(T)]
    return np.array(rows)


def plain_decoder(T: int) -> np.ndarray:
    """Prefix t + 1 as the sum of the finished nodes that its binary digits name."""
    index = {node: n for n, node in enumerate(nodes(T))}
    D = np.zeros((T, len(index)))
    for t in range(T):
        for node in digits(t + 1):
            D[t, index[node]] = 1.0
    return D


def honaker_decoder(T: int) -> np.ndarray:
    """As `plain_decoder`, each node averaged with its children by inverse variance."""
    index = {node: n for n, node in enumerate(nodes(T))}

    def estimate(node: Node) -> tuple[np.ndarray, float]:
        own = np.zeros(len(index))
        own[index[node]] = 1.0
        i, j = node
        if i == 0:
            return own, 1.0
        (left, v), (right, _) = estimate((i - 1, 2 * j)), estimate((i - 1, 2 * j + 1))
        weight = 1 / (1 + 1 / (2 * v))
        return weight * own + (1 - weight) * (left + right), weight

    return np.array([sum(estimate(node)[0] for node in digits(t + 1)) for t in range(T)])


def digits(length: int) -> list[Node]:
    """The finished nodes whose leaves are the first ``length`` steps, largest first."""
    found, start = [], 0
    for i in reversed(range(length.bit_length())):
        if length >> i & 1:
            found.append((i, start >> i))
            start += 1 << i
    return found
