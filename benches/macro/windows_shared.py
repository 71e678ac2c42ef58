"""What the peers' scripts for windows share: columns, arguments, and where they write.

The features, in the order in which all write them after the columns of the history; integers stay
integers and everything computed is float32. A null quantity counts as none sold, so that every
series has a value for each of its days and windows of rows are windows of days."""

import json
import sys
from pathlib import Path

KEYS = ["store_id", "item_id"]
COLUMNS = ["date", *KEYS, "category", "department", "qty", "price", "promotion", "event"]
LAGS = [1, 7, 28]
WINDOWS = [7, 28]
FEATURES = [f"qty_lag_{lag}d" for lag in LAGS]
FEATURES += [f"qty_{of}_{window}d" for window in WINDOWS for of in ("mean", "std")]
FEATURES += ["qty_expanding_mean", "qty_day_of_week_index"]


class Arguments:
    def __init__(self):
        files, order, out, threads, memory = sys.argv[1:]
        self.files, self.out = json.loads(files), Path(out)
        self.in_order = order == "time"
        self.threads, self.memory = int(threads), int(memory)
        (self.out / "data").mkdir()

    @property
    def data(self):
        return str(self.out / "data" / "part.parquet")
