"""TableOptimizer: has the tables of a model take a step with the gradients of all ranks.

dense = corro.DistributedOptimizer(dense, model.named_parameters())
rows = corro.TableOptimizer(model)
for ids, x, y in batches:
    dense.zero_grad()
    loss(model(ids, x), y).backward()
    dense.step()
    rows.step()
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from torch import nn

from corro import _context
from corro.errors import InvalidArgumentError
from corro.torch.embedding import EmbeddingTable


class TableOptimizer:
    """Pushes what backward() computed for the rows of tables.

    How a row is changed is its table's optimizer's business; a rate is that of `layer.table.lr`.
    All ranks make it over the same tables, and call step() equally often.

    Args:
        tables: a model, all of whose tables are meant, or EmbeddingTables.

    Raises:
        InvalidArgumentError: there are none, or two have one name.
    """

    def __init__(self, tables: nn.Module | Iterable[EmbeddingTable]) -> None:
        found = tables.modules() if isinstance(tables, nn.Module) else dict.fromkeys(tables)
        own = [one for one in found if isinstance(one, EmbeddingTable)]
        if not own:
            raise InvalidArgumentError("TableOptimizer: there is no EmbeddingTable in what it got")
        twice = [name for name, count in Counter(one.name for one in own).items() if count > 1]
        if twice:
            raise InvalidArgumentError(f"TableOptimizer: two tables are named {', '.join(twice)}")
        self._tables = sorted(own, key=lambda one: one.name)

    def step(self) -> None:
        """Pushes the gradients since the last step, averaged over the ranks; then they are gone.

        Those of several passes are added up, as torch adds them. Tables without a pass on this rank
        take part, with nothing. Every rank calls it; blocks until all servers have changed their
        rows, or as long as the tables' modes say. One table steps after the other, by name, and
        forgets its gradients even where its step fails.

        Raises:
            ValueError: a gradient is not finite; that table, and those after it, are as before.
        """
        ranks = _context.size() if _context.is_initialized() else 1
        for one in self._tables:
            ids, rows = one.take_gradients()
            one.table.push(ids.numpy(), (rows / ranks).numpy())

    def zero_grad(self) -> None:
        """Drops the gradients since the last step: of a step that is skipped, on all ranks."""
        for one in self._tables:
            one.drop_gradients()
