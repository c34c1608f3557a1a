from __future__ import annotations

import numpy as np
import pytest

from polyglance.errors import PolyglanceError
from polyglance.vision.labels import commonest_labels, label_names
from polyglance.vision.tokens import VisualTokens, grid_boxes, zero_spans


def test_every_language_has_names_for_all_classes() -> None:
    for language in ("ar", "en", "es", "fr", "he", "ru", "zh"):
        names = label_names(language)
        assert len(names) == 1000
        assert all(name and all(name) for name in names)
    assert label_names("en")[967][0] == "espresso"
    assert label_names("zh-CN") == label_names("zh")
    with pytest.raises(PolyglanceError, match="no names in 'de'"):
        label_names("de")


def test_common_labels_are_weighted_by_probability() -> None:
    tokens = VisualTokens(
        features=np.zeros((4, 2), np.float32),
        boxes=grid_boxes(2),
        global_feature=np.zeros(2, np.float32),
        label_ids=np.array([[967, 504], [504, 967], [504, 1], [281, 1]], np.uint16),
        label_probs=np.array([[0.9, 0.1], [0.5, 0.4], [0.4, 0.1], [0.7, 0.1]], np.float16),
        spans=zero_spans(4),
    )
    assert commonest_labels(tokens, 2) == ["espresso", "coffee mug"]
