"""Trains a GPT on the King James Bible as the planner says: corro run -np 4 python gpt_auto.py"""

import argparse
import struct
import subprocess
from itertools import pairwise
from math import log
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import corro

CONTEXT, BATCH, WIDTH, LAYERS = 64, 16, 64, 4
parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--data", default="/usr/lib/bible.data", help="of Debian's bible-kjv-text")
parser.add_argument("--steps", type=int, default=100)
parser.add_argument("--memory", default="4.5MiB", help="of a rank: with less the plan is another")
parser.add_argument("--checkpoint", help="a folder, to go on from")
args = parser.parse_args()


def load(path: str) -> Tensor:  # Windows of compress(1) data, whose common header comes first.
    data = Path(path).read_bytes()
    starts = struct.unpack_from(f">{struct.unpack_from('>I', data, 88)[0] + 1}I", data, 92)
    windows = [data[starts[0] - 3 : starts[0]] + data[a:b] for a, b in pairwise(starts)]
    parts = [subprocess.run(["gzip", "-dc"], input=w, stdout=-1, check=True) for w in windows]
    return torch.frombuffer(bytearray(b"".join(p.stdout for p in parts)), dtype=torch.uint8)


class GPT(nn.Module):
    def __init__(self, symbols: int) -> None:
        super().__init__()
        self.embed, self.place = nn.Embedding(symbols, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        block = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(block, LAYERS, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, symbols)

    def forward(self, x: Tensor) -> Tensor:  # [B, T] int64 -> [B, T, symbols]
        causal = nn.Transformer.generate_square_subsequent_mask(x.size(1))
        hidden = self.embed(x) + self.place.weight[: x.size(1)]
        return self.head(self.blocks(hidden, causal, is_causal=True))


def bits(model: nn.Module, rows: Tensor) -> Tensor:  # rows: [B, T + 1] int64
    return cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten()) / log(2)


corro.init()
torch.manual_seed(1)
rows = torch.stack(load(args.data).unique(return_inverse=True)[1].split(CONTEXT + 1)[:-1])
test, train = rows[:100], rows[100 : 100 + args.steps * BATCH]
model = GPT(int(rows.max()) + 1)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
more = {"validation": test, "checkpoint": args.checkpoint, "memory_limit": args.memory}
history = corro.fit(model, optimizer, bits, train, BATCH, **more)
if corro.rank() == 0:
    print(f"{history.why}\ndemo: bits_per_byte={history.validation[-1]:.3f} ranks={corro.size()}")
