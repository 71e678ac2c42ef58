"""What the peers' scripts share: columns, arguments, and what they leave behind.

Each leaves `learned.json` ({column: {count, nulls, mean, var, min, max, median}}, and `scaled`
with the mean and var of log1p after imputation) and `vocabulary/<column>.parquet` (token, count;
in the order of ids), as Forebay leaves an artifact."""

import json
import sys
from pathlib import Path

NUMBERS = [f"f{i}" for i in range(1, 14)]
TOKENS = [f"c{i}" for i in range(1, 27)]
MIN_COUNT = 2
SAMPLE_ROWS = 72_544  # What Forebay's median keeps at its rank error of 1 %.


class Arguments:
    def __init__(self):
        job, files, out, threads, memory = sys.argv[1:]
        self.job, self.files, self.out = job, json.loads(files), Path(out)
        self.threads, self.memory = int(threads), int(memory)
        (self.out / "vocabulary").mkdir(parents=True)
        (self.out / "data").mkdir()

    def vocabulary(self, column):
        return str(self.out / "vocabulary" / f"{column}.parquet")

    @property
    def data(self):
        return str(self.out / "data" / "part.parquet")

    def learned(self, statistics):
        (self.out / "learned.json").write_text(json.dumps(statistics))
