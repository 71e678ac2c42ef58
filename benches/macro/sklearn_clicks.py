"""scikit-learn: StandardScaler.partial_fit over pyarrow's batches, categories counted by pyarrow
and added up in Counters. It has no median that takes batches, so it computes none."""

from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from shared import MIN_COUNT, NUMBERS, TOKENS, Arguments
from sklearn.preprocessing import StandardScaler

args = Arguments()
pa.set_cpu_count(args.threads)
scaler = StandardScaler()
low, high = np.full(len(NUMBERS), np.inf), np.full(len(NUMBERS), -np.inf)
counters = {c: Counter() for c in TOKENS}
rows = 0
parquet = ds.ParquetFileFormat(dictionary_columns=TOKENS)
log = ds.dataset(args.files, format=parquet)
for batch in log.to_batches(columns=NUMBERS + TOKENS, batch_size=131_072):
    rows += batch.num_rows
    numbers = np.column_stack([batch[f].to_numpy(zero_copy_only=False) for f in NUMBERS]).astype(np.float64)
    scaler.partial_fit(numbers)
    low, high = np.fmin(low, np.nanmin(numbers, axis=0)), np.fmax(high, np.nanmax(numbers, axis=0))
    for c in TOKENS:
        counted = pc.value_counts(batch[c])
        values = counted.field("values")
        tokens = values.dictionary.take(values.indices) if pa.types.is_dictionary(values.type) else values
        counters[c].update(dict(zip(tokens.to_pylist(), counted.field("counts").to_pylist())))

counts = np.broadcast_to(scaler.n_samples_seen_, len(NUMBERS))
learned = {}
for i, f in enumerate(NUMBERS):
    learned[f] = {"count": int(counts[i]), "nulls": rows - int(counts[i]), "mean": scaler.mean_[i], "var": scaler.var_[i]}
    learned[f] |= {"min": low[i], "max": high[i]}
args.learned(learned)
for c, counter in counters.items():
    kept = [(token, count) for token, count in counter.most_common() if count >= MIN_COUNT and token is not None]
    tokens, counts = zip(*kept) if kept else ((), ())
    found = pa.table({"token": pa.array(tokens, pa.string()), "count": pa.array(counts, pa.int64())})
    pq.write_table(found, args.vocabulary(c), compression="snappy")
