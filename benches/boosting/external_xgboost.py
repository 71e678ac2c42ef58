"""Trees of XGBoost over files of rows: with pages on disk, or in memory. Prints the RMSE on the validation rows, and the bytes
on disk."""

import json
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import xgboost

job = json.loads(sys.argv[1])
COLUMNS = [f"x{column}" for column in range(job["columns"])]


def rows_of(file, part):
    """Numbers and labels of the rows of a part."""
    rows = pq.read_table(file, columns=["part", "y", *COLUMNS], filters=[("part", "=", part)])
    numbers = np.empty((rows.num_rows, len(COLUMNS)), dtype=np.float32)
    for number, column in enumerate(COLUMNS):
        # Missing numbers become NaN.
        numbers[:, number] = rows.column(column).to_numpy()
    return numbers, rows.column("y").to_numpy()


class Files(xgboost.DataIter):
    """The rows to learn from, a file at a time."""

    def __init__(self, cache):
        self.next_file = 0
        super().__init__(cache_prefix=cache, on_host=False)

    def next(self, input_data):
        if self.next_file == len(job["files"]):
            return False
        numbers, labels = rows_of(job["files"][self.next_file], 0)
        input_data(data=numbers, label=labels)
        self.next_file += 1
        return True

    def reset(self):
        self.next_file = 0


def main():
    settings = {
        "objective": "reg:squarederror",
        "tree_method": "hist",
        "grow_policy": job["policy"],
        "max_leaves": job["leaves"],
        "max_depth": 0 if job["policy"] == "lossguide" else (job["leaves"] - 1).bit_length(),
        "eta": 0.1,
        "lambda": 0,
        "min_child_weight": 20,
        "max_bin": 256,
        "nthread": job["threads"],
    }
    if job["policy"] == "depthwise":
        del settings["max_leaves"]
    if job["external"]:
        rows = xgboost.ExtMemQuantileDMatrix(Files(job["cache"]), max_bin=256, nthread=job["threads"])
    else:
        rows = xgboost.QuantileDMatrix(Files(None), max_bin=256, nthread=job["threads"])
    model = xgboost.train(settings, rows, num_boost_round=job["rounds"])
    cache = Path(job["cache"])
    cache_bytes = sum(page.stat().st_size for page in cache.parent.glob(f"{cache.name}*"))
    lost, count = 0.0, 0
    for file in job["files"]:
        numbers, labels = rows_of(file, 1)
        errors = model.inplace_predict(numbers) - labels
        lost += float((errors.astype(np.float64) ** 2).sum())
        count += len(labels)
    print(json.dumps({"rmse": (lost / max(count, 1)) ** 0.5, "cache_bytes": cache_bytes}))


main()
