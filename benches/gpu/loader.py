"""PyTorch's loader on the device: trains a small network on its batches, and prints one line of JSON."""

import json
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
    values, ids = len(loader.columns["dense"]), len(loader.columns["categorical"])
    width, wide = job["width"], 16
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

    # The first epoch warms up: kernels are loaded, memory is taken.
    for batch in loader:
        step(batch)
    loader.stats()
    torch.cuda.synchronize()
    begin, total = time.perf_counter(), 0
    for batch in loader:
        loss = step(batch)
        total += len(batch["label"])
    torch.cuda.synchronize()
    seconds = time.perf_counter() - begin
    stats = loader.stats()
    return {
        "device": torch.cuda.get_device_name(),
        "rows_per_second": total / seconds,
        "steps": stats["steps"],
        "starved_steps": stats["starved_steps"],
        "h2d_bytes_per_second": stats.get("h2d_bytes_per_second"),
        "loss": loss.item(),
    }


if __name__ == "__main__":
    print(json.dumps(measure(json.loads(sys.argv[1]))))
