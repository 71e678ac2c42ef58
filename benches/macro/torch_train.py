"""The network of pipelines/specs/forecast.yaml in PyTorch, on the batches that Forebay trained on, in their order:
the same layers and embeddings, AdamW (SparseAdam for embeddings, as Forebay moves only what a batch
touches), warm-up, cosine decay and clipping. First weights are PyTorch's own, but for the bias of the
result, which begins at the mean label of the first batch, as Forebay's does."""

import json
import math
import struct
import sys
import time
from pathlib import Path

import torch
from torch import nn

job = json.loads(sys.argv[1])
torch.manual_seed(0)
torch.set_num_threads(job["threads"])
BATCH, RATE, WARMUP, CLIP, DECAY = 2048, 0.003, 50, 10.0, 0.01

# What the model says of itself: a safetensors file begins with the length of its head.
with open(Path(job["model"]) / "model.safetensors", "rb") as file:
    (length,) = struct.unpack("<Q", file.read(8))
    shape = json.loads(json.loads(file.read(length))["__metadata__"]["forebay"])["shape"]


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.rows = [table["rows"] for table in shape["embeddings"]]
        self.tables = nn.ModuleList(nn.Embedding(table["rows"], table["width"], sparse=True) for table in shape["embeddings"])
        widths = [len(shape["dense"]) + sum(table["width"] for table in shape["embeddings"]), *shape["hidden"]]
        layers = []
        for inputs, outputs in zip(widths, widths[1:]):
            layers += [nn.Linear(inputs, outputs), nn.ReLU()]
        self.layers = nn.Sequential(*layers, nn.Linear(widths[-1], 1))
        for table in self.tables:
            nn.init.uniform_(table.weight, -0.05, 0.05)

    def forward(self, dense, ids):
        parts = [dense]
        for number, (table, rows) in enumerate(zip(self.tables, self.rows)):
            own = ids[:, number].long() + 1
            parts.append(table(torch.where((own > 0) & (own < rows), own, 0)))
        return self.layers(torch.cat(parts, 1)).squeeze(1)


DENSE, IDS = len(shape["dense"]), len(shape["embeddings"])
everything = torch.from_file(job["train"], size=Path(job["train"]).stat().st_size // 4).view(-1, DENSE + IDS + 1)
EPOCHS, ROWS = job["epochs"], len(everything) // job["epochs"]


def batches_of(rows):
    for first in range(0, len(rows), BATCH):
        batch = rows[first : first + BATCH]
        yield batch[:, :DENSE], batch[:, DENSE:-1], batch[:, -1]


network = Network()
weights = [parameter for name, parameter in network.layers.named_parameters() if name.endswith("weight")]
biases = [parameter for name, parameter in network.layers.named_parameters() if name.endswith("bias")]
groups = [{"params": weights, "weight_decay": DECAY}, {"params": biases, "weight_decay": 0.0}]
optimizers = [torch.optim.AdamW(groups, lr=RATE), torch.optim.SparseAdam(list(network.tables.parameters()), lr=RATE)]
steps, step = math.ceil(ROWS / BATCH) * EPOCHS, 0
began = time.perf_counter()
rows = 0
for epoch in range(EPOCHS):
    lost = weight = 0.0
    for dense, ids, label in batches_of(everything[epoch * ROWS : (epoch + 1) * ROWS]):
        if step == 0:
            network.layers[-1].bias.data.fill_(label.mean().item())
        step += 1
        rate = RATE * step / WARMUP if step <= WARMUP else RATE * 0.5 * (1 + math.cos(math.pi * (step - 1 - WARMUP) / (steps - WARMUP)))
        loss = nn.functional.mse_loss(network(dense, ids), label)
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        # The norm is over all gradients, those of embeddings too.
        all_of_them = [p.grad.coalesce().values() if p.grad.is_sparse else p.grad for p in network.parameters()]
        norm = torch.sqrt(sum((gradient.double() ** 2).sum() for gradient in all_of_them)).item()
        if norm > CLIP:
            for parameter in network.parameters():
                parameter.grad.mul_(CLIP / norm)
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = rate
            optimizer.step()
        lost, weight = lost + loss.item() * len(label), weight + len(label)
    rows += int(weight)
seconds = time.perf_counter() - began

square = absolute = labels = count = 0.0
with torch.no_grad():
    rest = torch.from_file(job["validation"], size=Path(job["validation"]).stat().st_size // 4).view(-1, DENSE + IDS + 1)
    for dense, ids, label in batches_of(rest):
        error = (network(dense, ids) - label).double()
        square, absolute = square + (error**2).sum().item(), absolute + error.abs().sum().item()
        labels, count = labels + label.abs().sum().item(), count + len(error)
found = {"loss": lost / weight, "wmape": absolute / labels, "rmse": math.sqrt(square / count), "speed": rows / seconds}
print(json.dumps(found))
