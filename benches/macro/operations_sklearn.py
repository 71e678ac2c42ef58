"""scikit-learn's part of `operations`: runs a case over all rows in memory, as doubles. Rows with a missing value, which some
of its transformers refuse, are left out there."""

import sys

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import (
    FunctionTransformer,
    KBinsDiscretizer,
    MaxAbsScaler,
    MinMaxScaler,
    OrdinalEncoder,
    PolynomialFeatures,
    StandardScaler,
)

KEYS = ["store_id", "item_id", "date"]
NUMBERS = ["price", "qty"]


def doubles(rows, names):
    return np.column_stack([rows[name].to_numpy().astype(np.float64) for name in names])


def named(columns, matrix):
    """The columns of a matrix under names; NaN is null."""
    return {name: pa.array(matrix[:, place], from_pandas=True) for place, name in enumerate(columns)}


def of_complete_rows(transformer, matrix):
    """Transforms the rows without missing values; the others stay missing."""
    complete = ~np.isnan(matrix).any(axis=1)
    out = transformer.fit_transform(matrix[complete])
    filled = np.full((len(matrix), out.shape[1]), np.nan)
    filled[complete] = out
    return filled


def standardize(rows):
    return named(["price"], StandardScaler().fit_transform(doubles(rows, ["price"])))


def scalers(rows):
    matrix, columns = doubles(rows, NUMBERS), {}
    for suffix, scaler in {
        "z": StandardScaler(),
        "unit": MinMaxScaler(),
        "both": MinMaxScaler(feature_range=(-1, 1)),
        "share": MaxAbsScaler(),
        "log": FunctionTransformer(np.log1p),
    }.items():
        columns |= named([f"{name}_{suffix}" for name in NUMBERS], scaler.fit_transform(matrix))
    return columns


def impute(rows):
    return named(["qty"], SimpleImputer().fit_transform(doubles(rows, ["qty"])))


def bins(rows):
    cut = KBinsDiscretizer(n_bins=20, encode="ordinal", strategy="uniform", subsample=None)
    matrix = of_complete_rows(cut, doubles(rows, ["price"]))
    return {"price": pa.array(matrix[:, 0], from_pandas=True).cast(pa.int32())}


def ordinal(rows):
    names = ["department", "category"]
    texts = np.column_stack([rows[name].to_numpy() for name in names])
    ids = OrdinalEncoder(dtype=np.int64).fit_transform(texts)
    return {f"{name}_id": pa.array(ids[:, place]) for place, name in enumerate(names)}


def polynomial(rows):
    # Without the column of ones and the columns themselves, which are its first three.
    products = of_complete_rows(PolynomialFeatures(), doubles(rows, NUMBERS))
    columns = named(["price_2", "price_x_qty", "qty_2"], products[:, 3:])
    matrix = doubles(rows, NUMBERS)
    # A square of a value needs no other.
    return columns | named(["price_2", "qty_2"], matrix * matrix)


CASES = {
    "standardize": (standardize, ["price"]),
    "scalers": (scalers, NUMBERS),
    "impute": (impute, ["qty"]),
    "bins": (bins, ["price"]),
    "ordinal": (ordinal, ["department", "category"]),
    "polynomial": (polynomial, NUMBERS),
}


def run(case, data, out):
    transform, names = CASES[case]
    rows = ds.dataset(data, format="parquet").to_table(columns=[*KEYS, *names])
    keys = {name: rows[name] for name in KEYS}
    pq.write_table(pa.table(keys | transform(rows)), out, compression="snappy")


if __name__ == "__main__":
    run(*sys.argv[1:])
