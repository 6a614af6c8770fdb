"""Two facts about Gram matrices X = CᵀC: their lower-triangular root, and when their signs agree."""

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order

from antiphon.errors import PlanError
from antiphon.numerics.arrays import Matrix

__all__ = ["lower_root", "signs_agree"]


def lower_root(X: Matrix) -> Matrix:
    """The lower-triangular C with positive diagonal and CᵀC = X.

    A rectangular or non-triangular encoder has the same column norms and the same noise law as this
    one, and this one can run on an adaptive stream [CorrelatedNoise24, sec. 3].
    """
    try:
        root = np.linalg.cholesky(X[::-1, ::-1])
    except np.linalg.LinAlgError as error:
        raise PlanError(
            "the Gram matrix is not positive definite, so no invertible encoder has it."
        ) from error
    return np.ascontiguousarray(root.T[::-1, ::-1])


def signs_agree(X: Matrix) -> bool:
    """Whether signs s exist with s_i s_j X_ij >= 0 for all i, j, up to rounding.

    Then contributions s_i u of one direction u reach Σ|X_ij|, so that this bound on a sensitivity is
    attained. It always holds for X >= 0 and for one or two rows.
    """
    # Entries that are 0 but for the rounding of a product have no sign.
    size = np.sqrt(np.abs(np.diagonal(X)))
    X = np.where(np.abs(X) > 1e-13 * np.outer(size, size), X, 0.0)
    if (X >= 0).all():
        return True
    graph = csr_array((X != 0).astype(np.int8))
    sign = np.zeros(len(X))
    for root in range(len(X)):
        if sign[root]:
            continue
        sign[root] = 1.0
        order, parent = breadth_first_order(graph, root, directed=False)
        for node in order[1:]:
            sign[node] = sign[parent[node]] * np.sign(X[parent[node], node])
    return bool((sign[:, None] * X * sign >= 0).all())
