import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import precision_score, recall_score, roc_auc_score

from in2r.metrics import auroc, precision_recall


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=1, max_size=40))
def test_auroc_equals_sklearn_with_ties(pairs):
    scores, positive = np.array([p[0] for p in pairs]) / 7, np.array([p[1] for p in pairs])
    if positive.all() or not positive.any():
        assert math.isnan(auroc(scores, positive))
    else:
        assert auroc(scores, positive) == pytest.approx(roc_auc_score(positive, scores), abs=1e-12)


def test_auroc_by_hand():
    # Positives 0.9, 0.5; negatives 0.5, 0.1: three wins and a tie of four comparisons.
    assert auroc([0.9, 0.5, 0.5, 0.1], [True, True, False, False]) == 0.875


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=30))
def test_precision_and_recall_equal_sklearn(pairs):
    predicted, truth = np.array(pairs).T
    precision, recall = precision_recall(predicted, truth)
    expected = precision_score(truth, predicted, zero_division=np.nan)
    assert precision == pytest.approx(expected, nan_ok=True)
    assert recall == pytest.approx(recall_score(truth, predicted, zero_division=np.nan), nan_ok=True)
