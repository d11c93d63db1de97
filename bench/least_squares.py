"""Least squares with coefficients of at least 0, and what `bench.cost` fits with them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]
_LEAST = 1e-10
_USUAL = 3000.0
"""A value whose error counts as by roots."""


def non_negative(a: Matrix, b: Matrix) -> Matrix:
    """The x >= 0 with the smallest |a x - b|, by the method of Lawson and Hanson (Solving Least Squares Problems,
    23.3).

    >>> non_negative(np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([2.0, -1.0]))
    array([2., 0.])
    """
    gram, target = a.T @ a, a.T @ b
    x, free = np.zeros(a.shape[1]), np.zeros(a.shape[1], bool)
    slope = target.copy()
    for _ in range(3 * a.shape[1]):
        if free.all() or slope[~free].max() <= _LEAST * max(1.0, float(target.max())):
            break
        free[int(np.argmax(np.where(free, -np.inf, slope)))] = True
        while True:
            solved = np.zeros_like(x)
            solved[free] = _solved(gram[np.ix_(free, free)], target[free])
            below = free & (solved <= _LEAST)
            if not below.any():
                break
            step = float((x[below] / (x[below] - solved[below] + 1e-300)).min())
            x = x + step * (solved - x)
            free &= x > _LEAST
        x = solved
        slope = target - gram @ x
    return x


def _solved(gram: Matrix, target: Matrix) -> Matrix:
    try:
        return np.asarray(np.linalg.solve(gram, target), np.float64)
    except np.linalg.LinAlgError:
        return np.asarray(np.linalg.lstsq(gram, target, rcond=None)[0], np.float64)


Rows = Sequence[tuple[Mapping[str, float], float]]
Shares = Sequence[tuple[Mapping[str, float], float, float]]


def relative_fit(rows: Shares, prior: Mapping[str, float], weight: float) -> dict[str, float]:
    """Coefficients by name whose sums of products come closest to the counts, each error as a share of its row's last number.

    prior: coefficients from which it costs `weight` times the square of the change's share of a mean count to differ.
    One that no row has a number for stays as it is.
    """
    names = sorted({name for work, _, _ in rows for name, value in work.items() if value})
    a = np.array([[work.get(name, 0.0) / whole for name in names] for work, _, whole in rows])
    shares = np.array([count / whole for _, count, whole in rows])
    mean = np.maximum(a.mean(axis=0), 1e-12)
    root = weight**0.5
    stacked = np.vstack([a / mean, root * np.eye(len(names))])
    wanted = np.concatenate([shares, root * mean * np.array([prior.get(name, 0.0) for name in names])])
    unseen = {name: value for name, value in prior.items() if name not in names and value > 0}
    return unseen | _named(names, non_negative(stacked, wanted) / mean)


def weighted_fit(rows: Rows, dear: Callable[[str], float], weight: float = 1e-4) -> dict[str, float]:
    """Coefficients by name for values whose errors grow as their powers of 3/4: small ones would have large relative errors by
    roots, and large ones large errors by shares. dear: how much a name's coefficient is kept small."""
    names = sorted({name for parts, _ in rows for name, value in parts.items() if value})
    scales = np.array([_USUAL**0.25 * max(value, 1.0) ** -0.75 for _, value in rows])
    a = np.array([[parts.get(name, 0.0) for name in names] for parts, _ in rows]) * scales[:, None]
    kept = np.diag([(weight * dear(name)) ** 0.5 for name in names])
    wanted = np.concatenate([np.array([value for _, value in rows]) * scales, np.zeros(len(names))])
    return _named(names, non_negative(np.vstack([a, kept]), wanted))


def anchored_fit(rows: Rows, anchor: Callable[[str], tuple[float, float]]) -> dict[str, float]:
    """Coefficients by name for values whose errors are all alike. anchor: of a name, the coefficient that it has without a
    reason for another one, and how dear it is to differ by 1, in the unit of the values."""
    names = sorted({name for parts, _ in rows for name, value in parts.items() if value})
    a = np.array([[parts.get(name, 0.0) for name in names] for parts, _ in rows])
    usual = np.array([anchor(name) for name in names])
    wanted = np.concatenate([np.array([value for _, value in rows]), usual[:, 0] * usual[:, 1]])
    return _named(names, non_negative(np.vstack([a, np.diag(usual[:, 1])]), wanted))


def _named(names: Sequence[str], values: Matrix) -> dict[str, float]:
    return {name: float(f"{value:.5g}") for name, value in zip(names, values, strict=True) if value > 0}
