"""Steps over drawn tables, beside the transformers of scikit-learn, category_encoders and feature_engine that they follow.

Each table has numbers with gaps, skewed and equal ones, whole numbers, categories, labels and times, drawn from a seed. All
steps of a table are one run. Values may differ by a share of 1e-9, or of what a case says and why; missing ones are equal."""

import argparse
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import category_encoders
import feature_engine.encoding
import feature_engine.imputation
import feature_engine.outliers
import feature_engine.scaling
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from sklearn import decomposition, feature_selection, impute, preprocessing
from sklearn.cluster import KMeans
from sklearn.metrics.pairwise import haversine_distances
from sklearn.tree import DecisionTreeRegressor

CASES = {}

# How far values may be from those of the peer, as a share: exponents of powers are searched, distances of scikit-learn are
# differences of large products, and feature_engine rounds the factor of a deviation to 0.6745.
TOLERANCES = {"power": 1e-4, "power_box_cox": 1e-4, "knn_impute": 1e-5, "knn_impute_by_distance": 1e-4, "winsorize_mad": 1e-5}


def case(step):
    """Registers a function of a table, which gives the columns of the peer, under its name."""

    def register(function):
        CASES[function.__name__] = step, function
        return function

    return register


def numbers(rows, *names):
    return rows[list(names)].to_numpy(dtype=float)


def column(name, values):
    return {name: np.asarray(values, dtype=float).ravel()}


def columns(names, matrix):
    matrix = np.asarray(matrix.todense() if hasattr(matrix, "todense") else matrix, dtype=float)
    return {name: matrix[:, place] for place, name in enumerate(names)}


def of_x(transformer):
    """The column `x` by a transformer."""
    return lambda rows: column("x", transformer().fit_transform(numbers(rows, "x")))


for name, step, scaler in (
    ("standardize", "standardize: { columns: [x], zero_variance: zero }", preprocessing.StandardScaler),
    ("min_max", "min_max: { columns: [x], zero_range: lower }", preprocessing.MinMaxScaler),
    ("max_abs", "max_abs: { columns: [x] }", preprocessing.MaxAbsScaler),
    ("robust_scale", "robust_scale: { columns: [x], exact: true }", preprocessing.RobustScaler),
    ("impute_mean", "impute: { columns: [x], with: mean }", impute.SimpleImputer),
    ("impute_median", "impute: { columns: [x], with: median, exact: true }", lambda: impute.SimpleImputer(strategy="median")),
):
    CASES[name] = step, of_x(scaler)


@case("power: { columns: [skewed] }")
def power(rows):
    return column("skewed", preprocessing.PowerTransformer().fit_transform(numbers(rows, "skewed")))


@case("power: { columns: [skewed], method: box_cox }")
def power_box_cox(rows):
    return column("skewed", preprocessing.PowerTransformer(method="box-cox").fit_transform(numbers(rows, "skewed")))


@case("normal_quantiles: { columns: [x], q: 20, exact: true }")
def normal_quantiles(rows):
    ranks = preprocessing.QuantileTransformer(n_quantiles=20, output_distribution="normal", subsample=None)
    return column("x", ranks.fit_transform(numbers(rows, "x")))


@case("normalize: { columns: [skewed, whole], norm: l1, suffix: _share }")
def normalize(rows):
    shares = preprocessing.Normalizer(norm="l1").fit_transform(numbers(rows, "skewed", "whole"))
    return column("skewed_share", shares[:, 0])


@case("k_bins: { columns: [skewed], bins: 4 }")
def bins_uniform(rows):
    cut = preprocessing.KBinsDiscretizer(n_bins=4, encode="ordinal", strategy="uniform")
    return column("skewed", cut.fit_transform(numbers(rows, "skewed")))


@case("k_bins: { columns: [place], bins: 4, strategy: k_means }")
def bins_k_means(rows):
    """The clusters of `KBinsDiscretizer`, which ends its search earlier, at a tolerance."""
    values = numbers(rows, "place")
    edges = np.linspace(values.min(), values.max(), 5)
    middles = (edges[1:] + edges[:-1])[:, None] / 2
    centers = np.sort(KMeans(4, init=middles, n_init=1, tol=0).fit(values).cluster_centers_[:, 0])
    return column("place", np.digitize(values[:, 0], (centers[1:] + centers[:-1]) / 2))


@case("ordinal: { columns: [kind] }")
def ordinal(rows):
    return column("kind", preprocessing.OrdinalEncoder().fit_transform(rows[["kind"]]))


@case("missing_indicator: { columns: [x] }")
def missing_indicator(rows):
    return column("x_missing", rows["x"].isna())


def near(weights):
    filled = impute.KNNImputer(n_neighbors=3, weights=weights)
    return lambda rows: columns(["x", "y", "skewed"], filled.fit_transform(numbers(rows, "x", "y", "skewed")))


CASES["knn_impute"] = "knn_impute: { columns: [x, y, skewed], neighbors: 3 }", near("uniform")
CASES["knn_impute_by_distance"] = "knn_impute: { columns: [x, y, skewed], neighbors: 3, weights: distance }", near("distance")


@case("polynomial: { columns: [skewed, place], degree: 2 }")
def polynomial(rows):
    products = preprocessing.PolynomialFeatures(include_bias=False).fit_transform(numbers(rows, "skewed", "place"))
    return columns(["skewed_2", "skewed_x_place", "place_2"], products[:, 2:])


@case("pca: { columns: [skewed, place, lat], components: 2, whiten: true }")
def pca(rows):
    found = decomposition.PCA(2, whiten=True, svd_solver="full").fit_transform(numbers(rows, "skewed", "place", "lat"))
    # The sign of a direction is that of its greatest entry, which both choose alike.
    return columns(["pca_1", "pca_2"], found)


@case("keep_best: { columns: [skewed, place, lat], score: correlation, label: y_full, count: 1 }")
def keep_best(rows):
    best = feature_selection.SelectKBest(feature_selection.f_regression, k=1)
    best.fit(numbers(rows, "skewed", "place", "lat"), rows["y_full"])
    return {
        name: rows[name].to_numpy() if is_best else np.full(len(rows), np.nan)
        for name, is_best in zip(("skewed", "place", "lat"), best.get_support())
    }


@case("distance: { from: [lat, place], to: [place, lat], name: km }")
def distance(rows):
    start, end = np.radians(numbers(rows, "lat", "place")), np.radians(numbers(rows, "place", "lat"))
    return column("km", [haversine_distances([a], [b])[0, 0] * 6371.0088 for a, b in zip(start, end)])


@case("frequency_encoding: { columns: [kind], compute: count }")
def frequency_encoding(rows):
    return column("kind", category_encoders.CountEncoder(cols=["kind"]).fit_transform(rows[["kind"]]))


@case("group_rare: { columns: [kind], min_share: 0.2, other: Rare }")
def group_rare(rows):
    rare = feature_engine.encoding.RareLabelEncoder(tol=0.2, n_categories=1, variables=["kind"])
    return {"kind": rare.fit_transform(rows[["kind"]])["kind"].to_numpy()}


def capped(**settings):
    capper = feature_engine.outliers.Winsorizer(tail="both", variables=["skewed"], **settings)
    return lambda rows: column("skewed", capper.fit_transform(rows[["skewed"]])["skewed"])


CASES["winsorize_quantiles"] = (
    "winsorize: { columns: [skewed], lower: 0.05, upper: 0.95, exact: true }",
    capped(capping_method="quantiles", fold=0.05),
)
CASES["winsorize_iqr"] = (
    "winsorize: { columns: [skewed], lower: 0.25, upper: 0.75, fold: 1.5, exact: true }",
    capped(capping_method="iqr", fold=1.5),
)
CASES["winsorize_mad"] = "winsorize: { columns: [skewed], around: median, exact: true }", capped(capping_method="mad", fold=3.29)


@case("impute: { columns: [x], with: { end_tail: { side: upper } } }")
def end_tail(rows):
    tail = feature_engine.imputation.EndTailImputer(imputation_method="gaussian", tail="right", fold=3, variables=["x"])
    return column("x", tail.fit_transform(rows[["x"]])["x"])


@case("standardize: { columns: [skewed], spread: range }")
def mean_range(rows):
    scaler = feature_engine.scaling.MeanNormalizationScaler(variables=["skewed"])
    return column("skewed", scaler.fit_transform(rows[["skewed"]])["skewed"])


@case("k_bins: { columns: [skewed], bins: 3, strategy: tree, label: y_full, exact: true }")
def tree_bins(rows):
    """Trees of as many leaves as bins, which feature_engine's grid of depths has not."""
    tree = DecisionTreeRegressor(max_leaf_nodes=3, random_state=0).fit(numbers(rows, "skewed"), rows["y_full"])
    edges = sorted(edge for edge, feature in zip(tree.tree_.threshold, tree.tree_.feature) if feature >= 0)
    return column("skewed", np.searchsorted(edges, rows["skewed"], side="left"))


def drawn(seed):
    """A table of up to 300 rows."""
    random = np.random.default_rng(seed)
    count = int(random.integers(40, 300))
    x = random.normal(random.uniform(-5, 5), 10 ** random.uniform(-2, 3), count)
    y = x * random.uniform(-1, 1) + random.normal(0, 1, count)
    table = {
        "row": np.arange(count),
        "x": np.where(random.random(count) < 0.15, np.nan, x),
        "y": np.where(random.random(count) < 0.15, np.nan, y),
        "y_full": y,
        "skewed": np.exp(random.normal(0, random.uniform(0.2, 1.5), count)),
        "whole": random.integers(0, 9, count).astype(float),
        "place": random.uniform(-60, 60, count),
        "lat": random.uniform(-60, 60, count),
        "kind": random.choice(["a", "b", "c", "d", "e"], count, p=[0.5, 0.25, 0.15, 0.07, 0.03]),
    }
    return pd.DataFrame(table)


def spec(names):
    steps = "".join(f"  {name}:\n    from: rows\n    do:\n      - {CASES[name][0]}\n" for name in names)
    sinks = "".join(f"  {name}: {{ from: {name}, parquet: {{ path: out/{name} }} }}\n" for name in names)
    return f"version: 1\nname: peers\nsources:\n  rows: {{ parquet: {{ path: rows.parquet }} }}\nsteps:\n{steps}sinks:\n{sinks}"


def difference(found, expected, tolerance):
    """Says where columns differ; empty where they do not."""
    if expected.dtype == object:
        unequal = np.flatnonzero(found != expected)
    else:
        found, expected = found.astype(float), expected.astype(float)
        size = np.nanmax(np.abs(expected), initial=1.0)
        # Of a difference of large numbers, rounding is a share of these.
        is_near = np.abs(found - expected) <= tolerance * (np.abs(expected) + 1e-2 * size)
        unequal = np.flatnonzero(~(is_near | (np.isnan(found) & np.isnan(expected))))
    if len(unequal) == 0:
        return ""
    row = unequal[0]
    return f"{len(unequal)} of {len(expected)} values; row {row}: {found[row]}, peer {expected[row]}"


def compared(options, seed, names, problems):
    """The number of values that were compared."""
    rows = drawn(seed)
    values = 0
    with tempfile.TemporaryDirectory(prefix="forebay-peers-") as folder:
        home = Path(folder)
        pq.write_table(pa.Table.from_pandas(rows, preserve_index=False), home / "rows.parquet")
        (home / "spec.yaml").write_text(spec(names))
        ended = subprocess.run([Path(options.forebay).resolve(), "run", "spec.yaml"], cwd=home, capture_output=True, text=True)
        if ended.returncode:
            sys.exit(f"seed {seed}: the run ended with {ended.returncode}:\n{ended.stderr}")
        for name in names:
            ours = pq.read_table(home / "out" / name).to_pandas().sort_values("row")
            for label, expected in CASES[name][1](rows).items():
                values += len(expected)
                problem = difference(ours[label].to_numpy(), expected, TOLERANCES.get(name, 1e-9))
                if problem:
                    problems.append(f"seed {seed}, {name}.{label}: {problem}")
    return values


def main():
    parser = argparse.ArgumentParser(
        prog="benches/peers/run", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cases", nargs="*", help=f"{', '.join(CASES)} [all]")
    parser.add_argument("--forebay", required=True, help="the program")
    parser.add_argument("--tables", type=int, default=100, help="tables to draw [100]")
    parser.add_argument("--seed", type=int, default=0, help="the seed of the first table [0]")
    options = parser.parse_args()
    if unknown := set(options.cases) - set(CASES):
        parser.error(f"there is no case {', '.join(sorted(unknown))}")
    warnings.simplefilter("ignore")
    names = options.cases or list(CASES)
    problems, values = [], 0
    for seed in range(options.seed, options.seed + options.tables):
        values += compared(options, seed, names, problems)
    print(f"{values:,} values of {len(names)} cases in {options.tables} tables, {len(problems)} columns differ")
    for problem in problems:
        print(f"FAILED  {problem}")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
