"""EmbeddingTable: an embedding layer whose rows lie in a table, not in the model.

    layer = corro.EmbeddingTable(None, 16, name="words", mode="mean", optimizer="adagrad")
    rows = corro.TableOptimizer(model)
    loss(model(ids)).backward()
    rows.step()

What a forward pass does: it finds the ids that differ, pulls the row of each once, and pools them
with torch's own operations. The pulled rows are a leaf of autograd, so backward() computes one
gradient a row; a hook takes it off the leaf and puts it aside in the layer. TableOptimizer pushes
what is aside, and empties it. A pass without a backward() leaves nothing behind.
"""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, NoReturn

import torch
import torch.nn.functional as F
from torch import nn
from torch._compile import _disable_dynamo

from corro.errors import InvalidArgumentError, OutOfRangeError

if TYPE_CHECKING:
    from torch import Tensor

    from corro.table import Initial, Optimizer, Table

Mode = Literal["sum", "mean", "max"]
TableMode = Literal["sync", "bounded", "async"]
MODES = ("sum", "mean", "max", None)
INTEGERS = {torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64}
# torch 2.2 has no such tensors.
UNSIGNED = {getattr(torch, name, None) for name in ("uint16", "uint32", "uint64")} - {None}


class Gradient(NamedTuple):
    """What backward() computed for the rows of one forward pass."""

    ids: Tensor  # [n] i64, no id twice
    rows: Tensor  # [n, dim] f32


class EmbeddingTable(nn.Module):
    """As torch.nn.EmbeddingBag, or with mode=None as torch.nn.Embedding, over a table's rows.

    The layer has no parameters: the rows lie in `corro.table.Table`, in the memory of the job's
    servers, or of this process where there are none. So an optimizer of torch, DistributedOptimizer
    and DistributedDataParallel find nothing of it, and state_dict() has no rows: a checkpoint of
    the model is one of all else. TableOptimizer trains it.

    While training, a forward pass under autograd is recorded until TableOptimizer.step(); after
    eval(), or without gradients, rows are pulled and nothing is recorded. Every forward pass blocks
    until its rows are there; passes may differ between ranks in number and in ids. Rows are float32
    and come to the input's device. Used from one thread at a time, and never copied or pickled:
    what lies in the table has one owner.

    Args:
        num_embeddings: ids are 0 ... num_embeddings - 1, and others refused; None: any integer of
            64 bits, such as a hash, and the table grows with the ids that are trained.
        dim: elements of a row.
        name: the table's name, the same on all ranks and no other table's.
        mode: how the rows of a bag become one: "sum", "mean" or "max"; None: there are no bags.
        padding_idx: an id whose row is zeros and is never trained; bags leave it out. A negative
            one counts from num_embeddings, if that is given.
        include_last_offset: whether offsets end with the number of ids, as in EmbeddingBag.
        optimizer: what a step does to the rows: a name or an optimizer of corro.table.
        initial: what a row is before it is trained; corro.table.Normal(0, 1), as torch's, if not
            given.
        dtype: of the rows in the table.
        seed: of initial values; a row's depend on it, the table's name and the id alone.
        table_mode: of the table: "sync", "bounded" or "async", as of corro.table.Table.
        staleness: of the table.

    Raises:
        InvalidArgumentError: an argument is none of those above.
    """

    table: Table
    _gradients: list[Gradient]

    def __init__(  # Those of EmbeddingBag, and those of a table.
        self,
        num_embeddings: int | None,
        dim: int,
        *,
        name: str,
        mode: Mode | None = "mean",
        padding_idx: int | None = None,
        include_last_offset: bool = False,
        optimizer: str | Optimizer = "sgd",
        initial: Initial | None = None,
        dtype: str = "float32",
        seed: int = 0,
        table_mode: TableMode = "sync",
        staleness: int = 0,
    ) -> None:
        super().__init__()
        self._set_up(name, num_embeddings, mode, padding_idx, include_last_offset)
        tables = import_module("corro.table")  # It needs numpy, which torch may be without.
        self.table = tables.Table(
            name,
            dim,
            optimizer=optimizer,
            dtype=dtype,
            seed=seed,
            initial=tables.Normal(0.0, 1.0) if initial is None else initial,
            mode=table_mode,
            staleness=staleness,
        )

    @classmethod
    def over(
        cls,
        table: Table,
        num_embeddings: int | None = None,
        *,
        mode: Mode | None = "mean",
        padding_idx: int | None = None,
        include_last_offset: bool = False,
    ) -> EmbeddingTable:
        """Returns a layer over a table that was made before, with options that a layer has not.

        Arguments are those of the class.
        """
        layer = cls.__new__(cls)
        nn.Module.__init__(layer)
        layer._set_up(table.name, num_embeddings, mode, padding_idx, include_last_offset)
        layer.table = table
        return layer

    @property
    def name(self) -> str:
        """The table's name."""
        return self.table.name

    @property
    def dim(self) -> int:
        """How many elements a row has."""
        return self.table.dim

    def extra_repr(self) -> str:
        """What print(model) says of it."""
        return f"{self.num_embeddings}, {self.dim}, name={self.name!r}, mode={self.mode!r}"

    @_disable_dynamo  # As torch's optimizers: torch.compile() is not to look at the pulls.
    def forward(
        self,
        input: Tensor,
        offsets: Tensor | None = None,
        per_sample_weights: Tensor | None = None,
    ) -> Tensor:
        """Returns the rows of the ids, pooled as EmbeddingBag does; blocks until they are there.

        Args:
            input: ids, integers. With bags [B, L], a bag each line, or [N] with offsets; without
                any shape S.
            offsets: [B], where in input each bag begins; an empty bag is zeros.
            per_sample_weights: as input, f32: factors of the rows; for sums alone.

        Returns:
            [B, dim] f32 with bags; S + (dim,) without.

        Raises:
            InvalidArgumentError: input is not integers, or there are offsets or weights without
                bags.
            OutOfRangeError: an id is not below num_embeddings; the message says where it stands.
            ValueError: as of torch.nn.functional.embedding_bag.
        """
        if self.mode is None and (offsets is not None or per_sample_weights is not None):
            raise InvalidArgumentError(
                f"EmbeddingTable {self.name}: mode=None takes no offsets and no per_sample_weights"
            )
        unique, places = torch.unique(self._ids_of(input), return_inverse=True)
        self._check_range(unique, input)
        rows, padding = self._pulled(unique)
        rows = rows.to(input.device)
        if self.mode is None:
            return F.embedding(places, rows, padding_idx=padding)
        return F.embedding_bag(
            places,
            rows,
            None if offsets is None else offsets.long(),
            mode=self.mode,
            per_sample_weights=per_sample_weights,
            include_last_offset=self.include_last_offset,
            padding_idx=padding,
        )

    @_disable_dynamo
    def prefetch(self, input: Tensor) -> None:
        """Begins to pull the rows of a later forward pass, and does not wait for them.

        That pass has the same rows as without. `input`: its ids, as forward() takes them.

        Raises:
            InvalidArgumentError: input is not integers.
            OutOfRangeError: an id is not below num_embeddings.
        """
        unique = torch.unique(self._ids_of(input))
        self._check_range(unique, input)
        ids = unique.cpu()
        if self.padding_idx is not None:
            ids = ids[ids != self.padding_idx]
        if len(ids):
            self.table.prefetch(ids.numpy())

    def take_gradients(self) -> Gradient:
        """Returns what was put aside since the last call, each row's added up, and forgets it."""
        aside, self._gradients = self._gradients, []
        if len(aside) == 1:
            return aside[0]
        if not aside:
            empty = torch.empty(0, dtype=torch.int64, device="cpu")
            return Gradient(empty, torch.empty(0, self.dim, dtype=torch.float32, device="cpu"))
        ids, places = torch.unique(torch.cat([one.ids for one in aside]), return_inverse=True)
        rows = torch.zeros(len(ids), self.dim, dtype=torch.float32, device="cpu")
        return Gradient(ids, rows.index_add_(0, places, torch.cat([one.rows for one in aside])))

    def drop_gradients(self) -> None:
        """Forgets what was put aside."""
        self._gradients.clear()

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        """Refuses copy.copy(), copy.deepcopy() and pickle: two layers would train one table."""
        raise TypeError(
            f"EmbeddingTable {self.name} cannot be copied or pickled: its rows lie in a table,"
            " which has one owner; model.state_dict() is what the rest of the model is saved by"
        )

    def _set_up(
        self,
        name: str,
        num_embeddings: int | None,
        mode: Mode | None,
        padding_idx: int | None,
        include_last_offset: bool,
    ) -> None:
        if mode not in MODES:
            raise InvalidArgumentError(
                f"EmbeddingTable {name}: mode has to be sum, mean, max or None, not {mode!r}"
            )
        if num_embeddings is not None and num_embeddings < 1:
            raise InvalidArgumentError(
                f"EmbeddingTable {name}: num_embeddings has to be positive, not {num_embeddings}"
            )
        self.num_embeddings = num_embeddings
        self.mode = mode
        self.padding_idx = self._row_of_padding(name, padding_idx)
        self.include_last_offset = include_last_offset
        self._gradients = []

    def _row_of_padding(self, name: str, padding_idx: int | None) -> int | None:
        """Returns the id of padding, counted from 0."""
        count = self.num_embeddings
        if padding_idx is None or count is None:
            return padding_idx
        if not -count <= padding_idx < count:
            raise InvalidArgumentError(
                f"EmbeddingTable {name}: padding_idx {padding_idx} is none of {count} ids"
            )
        return padding_idx % count

    def _ids_of(self, input: Tensor) -> Tensor:
        """Returns the ids as int64, which has a place for every number of 64 bits."""
        if input.dtype in INTEGERS:
            return input.long()
        if input.dtype in UNSIGNED:
            return input.view(torch.int64) if input.element_size() == 8 else input.to(torch.int64)
        raise InvalidArgumentError(
            f"EmbeddingTable {self.name}: ids have to be integers, not {input.dtype}"
        )

    def _check_range(self, unique: Tensor, input: Tensor) -> None:
        """Refuses ids that are not there. `unique` is sorted."""
        count = self.num_embeddings
        if count is None or not len(unique) or (unique[0] >= 0 and unique[-1] < count):
            return
        wrong = torch.nonzero((input < 0) | (input >= count))[0].tolist()
        raise OutOfRangeError(
            f"EmbeddingTable {self.name}: input{wrong} is {input[tuple(wrong)].item()}, and ids are"
            f" 0 ... {count - 1}"
        )

    def _pulled(self, unique: Tensor) -> tuple[Tensor, int | None]:
        """Returns the rows of these ids, [n, dim], at least one, and which of them is padding."""
        ids = unique.cpu()
        if self.padding_idx is None:
            return self._recorded(ids), None
        is_padding = ids == self.padding_idx
        rows = self._recorded(ids[~is_padding])
        if not is_padding.any():
            return rows, None
        place = int(is_padding.nonzero())
        zeros = torch.zeros(1, self.dim, dtype=rows.dtype, device="cpu")
        return torch.cat([rows[:place], zeros, rows[place : len(ids) - 1]]), place

    def _recorded(self, ids: Tensor) -> Tensor:
        """Pulls rows, whose gradient will be put aside. Without ids there is one row of zeros."""
        if len(ids):
            rows = torch.from_numpy(self.table.pull(ids.numpy()))
        else:
            rows = torch.zeros(1, self.dim, dtype=torch.float32, device="cpu")
        if self.training and torch.is_grad_enabled():
            rows.requires_grad_()  # Also without ids: a loss of empty bags has a backward().
            if len(ids):
                keep = partial(self._put_aside, ids)
                rows.register_post_accumulate_grad_hook(keep)  # type: ignore[no-untyped-call]
        return rows

    def _put_aside(self, ids: Tensor, rows: Tensor) -> None:
        if rows.grad is not None:
            self._gradients.append(Gradient(ids, rows.grad.detach()))
            rows.grad = None
