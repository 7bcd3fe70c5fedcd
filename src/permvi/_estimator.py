"""Matching as an estimator for scikit-learn."""

from typing import TYPE_CHECKING, Any

import numpy as np

from permvi import _fit
from permvi.inference.registry import AUTO
from permvi.models import PointMatching

if TYPE_CHECKING:
    from permvi.posterior import Posterior

try:
    from sklearn.base import BaseEstimator, ClassifierMixin
except ImportError:
    # Works without scikit-learn, but not inside its tools.
    _BASES: tuple[type, ...] = (object,)
else:
    _BASES = (ClassifierMixin, BaseEstimator)


class MatchingClassifier(*_BASES):  # type: ignore[misc]
    r"""A classifier that gives each class to at most one of the items it is shown together.

    `fit` learns a centre :math:`c_k` for each class k, the mean of its training points. The items
    :math:`y_1, \dots, y_n` of one call of `predict` are the centres of *different* classes plus
    noise, :math:`y_i = c_{\pi(i)} + \sigma \epsilon_i`, so that one answer depends on all items:
    who is left over is decided together. Use it for a group photo, the neurons of one animal or the
    parts in one box, where a class occurs once; items that may share a class need another
    classifier.

    Args:
        scale: Standard deviation of the noise, a number or one for each feature. None infers it
            from the items.
        noise: "gaussian" or "student_t".
        unmatched: Log weight of an item that belongs to no class, on the scale of log densities. By
            default items stay unmatched only if there are more of them than classes.
        method: Method of inference; see `permvi.fit`.
        seed: Seed of the fit.

    Attributes:
        classes_: (m,) the classes, sorted.
        centers_: (m, d) their centres.
        posterior_: The posterior of the last items that were predicted.

    Examples:
        >>> from permvi import MatchingClassifier
        >>> model = MatchingClassifier(scale=1.0).fit([[0.0], [3.0]], ["Ada", "Bo"])
        >>> model.predict([[1.9], [1.0]]).tolist()
        ['Bo', 'Ada']
    """

    def __init__(
        self,
        scale: Any = None,
        noise: str = "gaussian",
        unmatched: float | None = None,
        method: str = AUTO,
        seed: int = 0,
    ) -> None:
        self.scale = scale
        self.noise = noise
        self.unmatched = unmatched
        self.method = method
        self.seed = seed

    def fit(self, X: Any, y: Any) -> "MatchingClassifier":
        """Learn the centre of each class.

        Args:
            X: (N, d) training points.
            y: (N,) their classes.
        """
        points, classes = _points(X), np.asarray(y)
        if classes.shape != (len(points),):
            raise ValueError(
                f"y must have a class for each of {len(points)} points, got shape {classes.shape}."
            )
        self.classes_, of_point = np.unique(classes, return_inverse=True)
        sums = np.zeros((len(self.classes_), points.shape[1]))
        np.add.at(sums, of_point, points)
        self.centers_ = sums / np.bincount(of_point)[:, None]
        self.n_features_in_ = points.shape[1]
        return self

    def posterior(self, X: Any) -> "Posterior":
        """Return the posterior of the classes of items (n, d) that are seen together."""
        if not hasattr(self, "classes_"):
            raise ValueError("fit must be called before predict, got an estimator without classes.")
        points = _points(X)
        if points.shape[1] != self.n_features_in_:
            raise ValueError(
                f"X must have {self.n_features_in_} features, got shape {points.shape}."
            )
        model = PointMatching(
            points,
            self.centers_,
            scale=self.scale,
            noise=self.noise,  # type: ignore[arg-type]
            row_unmatched=self.unmatched,
            labels=(None, [str(one) for one in self.classes_.tolist()]),
        )
        self.posterior_ = _fit.fit(model, self.method, seed=self.seed)
        return self.posterior_

    def predict(self, X: Any) -> np.ndarray:
        """Return the classes (n,) of items that are seen together, each at most once.

        They have the most items right on average. Items without a class are None, in an array of
        objects.
        """
        perm = self.posterior(X).expected_loss("hamming").perm
        if (perm >= 0).all():
            return self.classes_[perm]
        return np.array([None if k < 0 else self.classes_[k] for k in perm.tolist()], dtype=object)

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the probabilities (n, m) of the classes of items that are seen together.

        A row adds up to one, less the probability that the item belongs to no class.
        """
        found = self.posterior(X).marginals
        return np.asarray(found.toarray() if hasattr(found, "toarray") else found)


def _points(X: Any) -> np.ndarray:
    points = np.asarray(X, dtype=np.float64)
    if points.ndim != 2:
        raise ValueError(f"X must be a table of points by features, got shape {points.shape}.")
    if not np.isfinite(points).all():
        raise ValueError("X must be finite, got NaN or infinity.")
    return points
