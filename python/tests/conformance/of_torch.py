"""torch's tensors, for the front ends that take them."""

from __future__ import annotations

from typing import Any

import torch

from conformance.front_end import FLOATS, FrontEnd, Values


class OfTorch(FrontEnd):
    dtypes = (
        *(name for name in FrontEnd.dtypes if hasattr(torch, name)),  # uint16 since 2.3.
        "bfloat16",
    )

    def make(self, values: Values, dtype: str) -> Any:
        return torch.tensor(values.tolist(), dtype=getattr(torch, dtype)).reshape(values.shape)

    def read(self, x: Any) -> Values:
        wide = torch.float64 if self.dtype(x) in (*FLOATS, "bfloat16") else torch.int64
        return x.to(wide).numpy()

    def dtype(self, x: Any) -> str:
        return str(x.dtype).removeprefix("torch.")

    def transposed(self, x: Any) -> Any:
        return x.t()
