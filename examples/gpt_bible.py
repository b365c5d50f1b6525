"""Trains a small GPT on the King James Bible: corro run -np 2 python gpt_bible.py

Plain DDP over the back end "corro". The bar to beat is a bigram model with add-one smoothing.
"""

import argparse
import math
import struct
import subprocess
import time
from itertools import pairwise
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--data", default="/usr/lib/bible.data", help="of Debian's bible-kjv-text")
parser.add_argument("--steps", type=int, default=400)
parser.add_argument("--batch", type=int, default=16, help="sequences a rank and step")
parser.add_argument("--rows", type=int, help="of the held-out text to test on; default: all")
parser.add_argument("--context", type=int, default=64)
args = parser.parse_args()


def load(path: str) -> Tensor:
    """Returns the text's bytes: windows of compress(1) data, whose common header comes first."""
    data = Path(path).read_bytes()
    count = struct.unpack_from(">I", data, 88)[0]
    starts = struct.unpack_from(f">{count + 1}I", data, 92)
    windows = [data[starts[0] - 3 : starts[0]] + data[a:b] for a, b in pairwise(starts)]
    parts = [subprocess.run(["gzip", "-dc"], input=w, stdout=-1, check=True) for w in windows]
    return torch.frombuffer(bytearray(b"".join(p.stdout for p in parts)), dtype=torch.uint8)


class Block(nn.Module):
    def __init__(self, width: int, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:  # B: batch, T: time, D: width, H: heads
        q, k, v = self.qkv(self.norm1(x)).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)  # [B, H, T, D/H]
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class GPT(nn.Module):
    def __init__(self, symbols: int, width: int = 128, layers: int = 3) -> None:
        super().__init__()
        self.embed, self.place = nn.Embedding(symbols, width), nn.Embedding(args.context, width)
        self.blocks = nn.Sequential(*[Block(width) for _ in range(layers)])
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, symbols))

    def forward(self, x: Tensor) -> Tensor:  # [B, T] int64 -> [B, T, symbols]
        return self.head(self.blocks(self.embed(x) + self.place.weight[: x.size(1)]))


dist.init_process_group("corro")
rank, ranks = dist.get_rank(), dist.get_world_size()
text = load(args.data).unique(return_inverse=True)[1]
symbols = int(text.max()) + 1
train, held_out = text.split([len(text) - len(text) // 10, len(text) // 10])
pairs = torch.bincount(train[:-1] * symbols + train[1:], minlength=symbols**2).view(symbols, -1)
chances = (pairs + 1) / (pairs.sum(1, keepdim=True) + symbols)
bigram = -chances[held_out[:-1], held_out[1:]].log2().mean().item()
torch.manual_seed(1)
model = DistributedDataParallel(GPT(symbols))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, args.steps)
torch.manual_seed(2 + rank)  # From here on each rank reads other places.
start = time.monotonic()
for step in range(args.steps):
    places = torch.randint(len(train) - args.context, (args.batch, 1))
    windows = train[places + torch.arange(args.context + 1)]  # [B, T + 1]
    loss = F.cross_entropy(model(windows[:, :-1]).flatten(0, 1), windows[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()
    if rank == 0 and (step + 1) % 100 == 0:
        print(f"step {step + 1}/{args.steps}: {loss.item() / math.log(2):.3f} bits per byte")
rows = held_out[: len(held_out) // args.context * args.context].view(-1, args.context)
total = torch.zeros(2, dtype=torch.float64)  # Bits, bytes; of each rank's part of the rows.
with torch.no_grad():
    for part in rows[: args.rows][rank::ranks].split(256):
        scores = model.module(part[:, :-1]).flatten(0, 1)
        nats = F.cross_entropy(scores, part[:, 1:].flatten(), reduction="sum")
        total += torch.tensor([nats / math.log(2), part[:, 1:].numel()])
dist.all_reduce(total)
if rank == 0:
    reached, took = total[0] / total[1], time.monotonic() - start
    print(f"demo: bits_per_byte={reached:.3f} {bigram=:.3f} {ranks=} seconds={took:.1f}")
dist.destroy_process_group()
