"""The transformer of scikit-learn."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy
import pandas
import polars
import pytest
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from forebay import transforms as t
from forebay.sklearn import ForebayTransformer

ROWS = 200


def frame() -> pandas.DataFrame:
    random = numpy.random.default_rng(5)
    price = random.gamma(2.0, 3.0, ROWS)
    price[::17] = numpy.nan
    return pandas.DataFrame(
        {
            "price": price,
            "rank": random.integers(0, 9, ROWS),
            "color": random.choice(["red", "green", "blue"], ROWS),
        }
    )


def steps() -> list[Any]:
    return [
        t.impute(["price"], with_="mean"),
        t.standardize(["price", "rank"]),
        t.one_hot(["color"]),
    ]


def test_values_are_those_of_scikit_learn() -> None:
    rows = frame()
    made = ForebayTransformer(steps()).set_output(transform="pandas").fit_transform(rows)
    filled = rows[["price", "rank"]].fillna({"price": rows["price"].mean()})
    expected = StandardScaler().fit_transform(filled)
    numpy.testing.assert_allclose(made[["price", "rank"]], expected, rtol=1e-6, atol=1e-6)
    dummies = pandas.get_dummies(rows["color"])
    vectors = made[[name for name in made.columns if name.startswith("color")]].to_numpy()
    assert vectors.sum() == ROWS
    assert {tuple(column) for column in vectors.T} >= {tuple(dummies[name].astype(float)) for name in dummies}


def test_a_transformer_has_a_place_in_a_pipeline() -> None:
    rows = frame()
    label = rows["rank"] * 2.0 + 1.0
    columns = ColumnTransformer([("features", ForebayTransformer(steps()), ["price", "rank", "color"])])
    model = make_pipeline(columns, LinearRegression()).fit(rows, label)
    assert model.score(rows, label) > 0.99
    searched = GridSearchCV(
        make_pipeline(ForebayTransformer(steps()), LinearRegression()),
        {"forebaytransformer__steps": [steps(), [*steps()[:1], t.drop(["color"])]]},
        cv=2,
    )
    assert searched.fit(rows, label).best_score_ > 0.99


@pytest.mark.parametrize("again", [copy.deepcopy, lambda fitted: pickle.loads(pickle.dumps(fitted))])
def test_what_was_learned_goes_along(again: Any) -> None:
    rows = frame()
    fitted = ForebayTransformer(steps()).fit(rows)
    expected = fitted.transform(rows)
    numpy.testing.assert_array_equal(again(fitted).transform(rows), expected)
    assert not hasattr(clone(fitted), "artifact_files_")


def test_frames_of_any_library_are_taken() -> None:
    rows = frame()
    fitted = ForebayTransformer(steps()).fit(rows)
    expected = fitted.transform(rows)
    numpy.testing.assert_array_equal(fitted.transform(polars.from_pandas(rows)), expected)
    out = fitted.set_output(transform="polars").transform(rows)
    assert list(out.columns) == list(fitted.get_feature_names_out())
    assert fitted.get_feature_names_out()[:2].tolist() == ["price", "rank"]


def test_rows_that_go_or_come_are_refused() -> None:
    rows = frame()
    fitted = ForebayTransformer([t.filter("rank > 3"), t.drop(["color"])]).fit(rows)
    with pytest.raises(ValueError, match="gives each row once"):
        fitted.transform(rows)


NUMBERS = ForebayTransformer([t.standardize(["*"])])


@parametrize_with_checks([NUMBERS], expected_failed_checks=lambda _: {})
def test_checks_of_scikit_learn(estimator: Any, check: Any) -> None:
    # Scikit-learn leaves this one out where its experimental arrays are not turned on.
    if check.func.__name__ != "check_array_api_input":
        check(estimator)
