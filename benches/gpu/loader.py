"""PyTorch's loader on the device: trains a small network on its batches, then only takes them, as PyTorch's own
DataLoader over the same files does beside it. Prints one line of JSON."""

import glob
import json
import os
import subprocess
import sys
import time

IDS = 1 << 16


def not_run(why):
    return {"not_run": why}


def measure(job):
    try:
        import torch
    except ImportError:
        return not_run("PyTorch is not installed: `pip install torch`")
    if not torch.cuda.is_available():
        return not_run("PyTorch sees no GPU: install one that is built for the driver's CUDA version")
    try:
        import forebay
    except ImportError:
        return not_run("Forebay's wheel is not installed: `maturin build --release -m pipelines/python/Cargo.toml`")

    options = {"params": job["params"], "state": job["state"], "batch_rows": job["batch_rows"]}
    loader = forebay.Loader(job["spec"], device="cuda", **options)
    train = training_step(loader.columns, job["width"])
    epoch(loader, train)
    loader.stats()
    figures = epoch(loader, train)
    stats = loader.stats()
    return {
        "device": torch.cuda.get_device_name(),
        "rows_per_second": figures["rows_per_second"],
        "steps": stats["steps"],
        "starved_steps": stats["starved_steps"],
        "h2d_bytes_per_second": stats.get("h2d_bytes_per_second"),
        "loss": figures["last"].item(),
        "alone": second_epoch(loader, sums)["rows_per_second"],
        "peer": beside(job, loader),
    }


def beside(job, loader):
    """The peer in a process of its own, since its workers are forks."""
    columns = loader.columns
    loader.close()
    done = subprocess.run(
        [sys.executable, __file__, json.dumps({**job, "columns": columns})],
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def epoch(batches, step):
    """Rows a second and the last result."""
    import torch

    torch.cuda.synchronize()
    begin, total, last = time.perf_counter(), 0, None
    for batch in batches:
        last = step(batch)
        total += len(batch["label"])
    torch.cuda.synchronize()
    return {"rows_per_second": total / (time.perf_counter() - begin), "last": last}


def second_epoch(batches, step):
    """The same after an epoch in which kernels are loaded and memory is taken."""
    epoch(batches, step)
    return epoch(batches, step)


def training_step(columns, width):
    import torch

    values, ids = len(columns["dense"]), len(columns["categorical"])
    wide = 16
    embeddings = torch.nn.Embedding(IDS, wide).cuda()
    layers = torch.nn.Sequential(
        torch.nn.Linear(values + ids * wide, width),
        torch.nn.ReLU(),
        torch.nn.Linear(width, width),
        torch.nn.ReLU(),
        torch.nn.Linear(width, 1),
    ).cuda()
    parameters = [*embeddings.parameters(), *layers.parameters()]
    optimizer = torch.optim.AdamW(parameters, fused=True)
    loss_of = torch.nn.BCEWithLogitsLoss()

    def step(batch):
        with torch.autocast("cuda", torch.bfloat16):
            embedded = embeddings(batch["categorical"] % IDS).flatten(1)
            odds = layers(torch.cat([batch["dense"], embedded], 1))[:, 0]
        loss = loss_of(odds.float(), batch["label"].float())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return step


def sums(batch):
    """The least that is done with a batch: each of its parts is read on the GPU."""
    return [part.sum() for part in batch.values()]


def peer(job):
    """Rows a second of PyTorch's DataLoader: a process for each core decodes row groups in a random order and mixes
    the rows of each, and page-locked batches are copied to the GPU."""
    import numpy
    from pyarrow import parquet
    import torch

    columns = job["columns"]
    files = sorted(glob.glob(os.path.join(job["params"]["out"], "table", "*.parquet")))
    groups = [(file, group) for file in files for group in range(parquet.read_metadata(file).num_row_groups)]
    # A process without a row group would only start and end.
    cores = min(len(os.sched_getaffinity(0)), len(groups))
    kinds = {"dense": numpy.float32, "categorical": numpy.int64}

    def stacked(table, names, kind):
        values = numpy.empty((table.num_rows, len(names)), dtype=kind)
        for at, name in enumerate(names):
            values[:, at] = table.column(name).fill_null(0).to_numpy()
        return values

    class RowGroups(torch.utils.data.IterableDataset):
        def __iter__(self):
            worker = torch.utils.data.get_worker_info()
            random = numpy.random.default_rng(1)
            for number in random.permutation(len(groups))[worker.id :: worker.num_workers]:
                file, group = groups[number]
                table = parquet.ParquetFile(file).read_row_group(group, use_threads=False)
                parts = {name: stacked(table, columns[name], kind) for name, kind in kinds.items()}
                parts["label"] = table.column(job["label"]).to_numpy()
                order = random.permutation(table.num_rows)
                for first in range(0, table.num_rows, job["batch_rows"]):
                    some = order[first : first + job["batch_rows"]]
                    yield {name: torch.from_numpy(part[some]) for name, part in parts.items()}

    loader = torch.utils.data.DataLoader(
        RowGroups(),
        batch_size=None,
        num_workers=cores,
        prefetch_factor=4,
        pin_memory=True,
        persistent_workers=True,
    )

    class OnTheDevice:
        def __iter__(self):
            for batch in loader:
                yield {name: part.to("cuda", non_blocking=True) for name, part in batch.items()}

    return {"rows_per_second": second_epoch(OnTheDevice(), sums)["rows_per_second"], "processes": cores}


if __name__ == "__main__":
    asked = json.loads(sys.argv[1])
    print(json.dumps(peer(asked) if "columns" in asked else measure(asked)))
