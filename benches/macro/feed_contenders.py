"""One contender of benches/feed in a process of its own: `feed_contenders.py NAME DATA STATE`.

Prints a line of JSON: rows and bytes of an epoch, seconds of the first and of the last epoch, CPU seconds
of this process and its children in the last, the quality of the shuffle, and whether every row came once."""

import importlib
import importlib.util
import json
import os
import resource
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from shared import NUMBERS, TOKENS

BATCH = 8192
GROUP = 122_880
BUFFER = 160_000
EPOCHS = 2
CORES = len(os.sched_getaffinity(0))
FEED = """
version: 1
name: features
sources: {{ rows: {{ parquet: {{ path: "{data}" }} }} }}
feed:
  dense: {numbers}
  categorical: {tokens}
  categorical_type: i32
  label: row
  missing_id: 0
  last: short
"""


def prepare(clicks, out, work):
    """The features of clicks as Parquet files of pyarrow, each row with its number."""
    import forebay

    work, out = Path(work), Path(out)
    work.mkdir(parents=True)
    out.mkdir(parents=True)
    spec = Path(__file__).parents[1] / "specs" / "clicks_run.yaml"
    forebay.run(spec, {"log": clicks, "out": str(work / "out")}, state=str(work / "state"))
    first = 0
    for number, file in enumerate(sorted((work / "out").rglob("*.parquet"))):
        source = pq.ParquetFile(file)
        writer = None
        for batch in source.iter_batches(GROUP, columns=[*NUMBERS, *TOKENS]):
            rows = pa.Table.from_batches([batch])
            columns = {name: rows[name].cast(pa.float32()) for name in NUMBERS}
            columns |= {name: rows[name].cast(pa.int32()).fill_null(0) for name in TOKENS}
            columns["row"] = pa.array(np.arange(first, first + len(rows), dtype=np.int32))
            first += len(rows)
            rows = pa.table(columns)
            writer = writer or pq.ParquetWriter(out / f"part-{number:03}.parquet", rows.schema)
            writer.write_table(rows, row_group_size=GROUP)
        if writer:
            writer.close()


def quality(rows, of):
    """The measure of Forebay's own `feed` command."""
    true = (of + 1) / 3
    lags = [1 << power for power in range(13) if power == 0 or (16 << power) < len(rows)]
    return min(min(np.abs(rows[lag:] - rows[:-lag]).mean() / true, 1.0) for lag in lags)


def deliver(epoch, of):
    """Two epochs of (features, numbers of rows), one after the other, each by the clock."""
    seen, size, checked, marks = [[] for _ in range(EPOCHS)], 0, 0.0, [mark()]
    for rows_of in seen:
        size = 0
        for tensors, rows in epoch():
            rows_of.append(np.array(rows))
            size += sum(tensor.nbytes for tensor in tensors) + 4 * len(rows)
            checked += float(tensors[0][0, 0])
        marks.append(mark())
    if not all(seen):
        return
    kind = seen[0][0].dtype
    # As float32, numbers beyond 2^24 are even.
    all_rows = np.arange(of).astype(kind).astype(np.int64)
    seen = [np.concatenate(rows).astype(np.int64) for rows in seen]
    once = all(len(rows) == of and np.array_equal(np.sort(rows), all_rows) for rows in seen)
    tell(len(seen[-1]), size, marks, float(min(quality(rows, of) for rows in seen)), bool(once))


def tell(rows, size, marks, quality, once):
    spent = [(end[0] - begin[0], end[1] - begin[1]) for begin, end in zip(marks, marks[1:])]
    (first, _), (seconds, cpu) = spent[0], spent[-1]
    told = {"rows": rows, "bytes": size, "first": first, "seconds": seconds, "cpu": cpu}
    print(json.dumps(told | {"quality": quality, "once": once}), flush=True)


def mark():
    """The time by the clock, and the CPU time of this process and its children."""
    both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return time.perf_counter(), sum(one.ru_utime + one.ru_stime for one in both)


def tensors_of(batch):
    """Two tensors and the numbers of rows of a batch of pyarrow."""
    import torch

    def stack(names, kind):
        values = np.empty((batch.num_rows, len(names)), dtype=kind)
        for at, name in enumerate(names):
            values[:, at] = batch.column(name).to_numpy(zero_copy_only=False)
        return torch.from_numpy(values)

    return (stack(NUMBERS, np.float32), stack(TOKENS, np.int32)), batch.column("row").to_numpy()


def floor(data, _state):
    scan = ds.dataset(data, format="parquet")
    marks = [mark()]
    for _ in range(EPOCHS):
        rows, size = 0, 0
        for batch in scan.to_batches(batch_size=BATCH):
            rows += batch.num_rows
            size += batch.nbytes
        marks.append(mark())
    tell(rows, size, marks, None, True)


def forebay(data, state, order="shuffled"):
    import forebay as package

    spec = Path(state).with_suffix(".yaml")
    spec.write_text(FEED.format(data=data, numbers=json.dumps(NUMBERS), tokens=json.dumps(TOKENS)))
    loader = package.Loader(spec, state=state, order=order, batch_rows=BATCH, seed=1)
    deliver(lambda: (((b["dense"], b["categorical"]), b["label"].numpy()) for b in loader), count(data))
    print(loader.stats())


def forebay_sequential(data, state):
    forebay(data, state, "sequential")


def pyarrow(data, _state):
    scan = ds.dataset(data, format="parquet")
    deliver(lambda: map(tensors_of, scan.to_batches(batch_size=BATCH)), count(data))


def torch(data, _state):
    import torch.utils.data as tud

    files = sorted(str(path) for path in Path(data).glob("*.parquet"))
    groups = [(file, group) for file in files for group in range(pq.read_metadata(file).num_row_groups)]

    class Groups(tud.IterableDataset):
        def __iter__(self):
            worker = tud.get_worker_info()
            random = np.random.default_rng(1)
            mine = random.permutation(len(groups))[worker.id :: worker.num_workers]
            for file, group in (groups[number] for number in mine):
                table = pq.ParquetFile(file).read_row_group(group, use_threads=False)
                (dense, ids), rows = tensors_of(table.combine_chunks().to_batches()[0])
                order = random.permutation(len(rows))
                for first in range(0, len(rows), BATCH):
                    some = order[first : first + BATCH]
                    yield dense[some], ids[some], rows[some]

    loader = tud.DataLoader(Groups(), batch_size=None, num_workers=CORES, prefetch_factor=4)
    deliver(lambda: (((dense, ids), rows.numpy()) for dense, ids, rows in loader), count(data))


def ray(data, _state):
    import torch as library

    import ray as package

    package.init(num_cpus=CORES, include_dashboard=False, log_to_driver=False, object_store_memory=3 << 30)
    package.data.DataContext.get_current().enable_progress_bars = False
    rows = package.data.read_parquet(data, shuffle="files")
    kinds = dict.fromkeys(NUMBERS, library.float32) | dict.fromkeys([*TOKENS, "row"], library.int32)
    batches = rows.iter_torch_batches(batch_size=BATCH, local_shuffle_buffer_size=BUFFER, local_shuffle_seed=1, dtypes=kinds)

    def stacked(batch):
        sides = [library.stack([batch[name] for name in names], dim=1) for names in (NUMBERS, TOKENS)]
        return sides, batch["row"].numpy()

    deliver(lambda: map(stacked, batches), count(data))


def mosaic(data, _state, rows, out):
    import streaming
    from torch.utils.data import DataLoader

    rows, columns = int(rows), {"dense": "ndarray:float32:13", "ids": "ndarray:int32:26", "row": "int32"}
    if not Path(out).exists():
        with streaming.MDSWriter(out=str(out), columns=columns) as writer:
            for batch in ds.dataset(data, format="parquet").head(rows).to_batches(BATCH):
                (dense, ids), numbers = tensors_of(batch)
                for one in zip(dense.numpy(), ids.numpy(), numbers):
                    writer.write(dict(zip(columns, one)))
    dataset = streaming.StreamingDataset(local=str(out), shuffle=True, batch_size=BATCH, shuffle_seed=1)
    loader = DataLoader(dataset, batch_size=BATCH, num_workers=CORES)
    deliver(lambda: (((b["dense"], b["ids"]), b["row"].numpy()) for b in loader), rows)


def count(data):
    return ds.dataset(data, format="parquet").count_rows()


if __name__ == "__main__":
    name, *words = sys.argv[1:]
    if name == "has":
        sys.exit(0 if importlib.util.find_spec(words[0]) else 1)
    if name not in ("prepare", "floor"):
        # Importing it takes a second or two, which must not count towards an epoch.
        importlib.import_module("torch.utils.dlpack")
    globals()[name.replace("-", "_")](*words)
