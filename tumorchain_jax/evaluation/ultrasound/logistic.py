"""Logistic regression of few features, by scipy.

Shape letters: N rows, F features.
"""

import numpy as np
from jaxtyping import Bool, Float
from scipy.optimize import minimize
from scipy.special import expit


def fit_and_score(
    train: Float[np.ndarray, "N F"],
    labels: Bool[np.ndarray, " N"],
    test: Float[np.ndarray, "M F"],
    penalty: float = 1.0,
) -> Float[np.ndarray, " M"]:
    """Fit on some rows and return the probabilities of others.

    Args:
        penalty: half of it times the squared weights of the standardized features is added to the
            sum of the losses, as in scikit-learn with C = 1 / penalty.
    """
    mean, std = train.mean(axis=0), train.std(axis=0)
    x, z = ((rows - mean) / np.where(std > 0, std, 1) for rows in (train, test))
    signs = np.where(labels, 1.0, -1.0)

    def loss(weights: np.ndarray) -> tuple[float, np.ndarray]:
        margin = signs * (x @ weights[1:] + weights[0])
        slope = -signs * expit(-margin)
        value = np.logaddexp(0, -margin).sum() + penalty / 2 * (weights[1:] ** 2).sum()
        gradient = np.concatenate([[slope.sum()], x.T @ slope + penalty * weights[1:]])
        return float(value), gradient

    found = minimize(loss, np.zeros(x.shape[1] + 1), jac=True, method="L-BFGS-B")
    return expit(z @ found.x[1:] + found.x[0])
