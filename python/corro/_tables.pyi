"""The door to tables; use corro.table. Arrays are addresses, dtypes are those of corro._native."""

Optimizer = tuple[int, float, float, float, float, float, float, float, float, float]
Initial = tuple[int, float, float]
Retention = tuple[int, int, int, str]

def snapshots(folder: str) -> list[int]:
    """Returns the steps of which there are snapshots, newest first."""

def local() -> Tables:
    """Returns tables of this process alone."""

def served(timeout: float) -> Tables:
    """Returns those of the job's servers; blocks until these have said where they are.

    With CORRO_SERVERS=ranks this process is one of them, by a thread that it starts.
    """

class Tables:
    def open(
        self,
        name: str,
        dim: int,
        dtype: int,
        seed: int,
        optimizer: Optimizer,
        initial: Initial,
        retention: Retention,
        replicas: int,
        mode: int,
        staleness: int,
    ) -> int:
        """Returns the table's number."""
    def pull(self, table: int, ids: int, count: int, values: int) -> None: ...
    def prefetch(self, table: int, ids: int, count: int, most: int) -> None: ...
    def wait(self, table: int) -> None: ...
    def push(self, table: int, ids: int, count: int, gradients: int) -> None: ...
    def save(self, table: int, folder: str, keep: int, full_every: int) -> None: ...
    def wait_for_save(self, table: int) -> int | None: ...
    def save_into(self, table: int, folder: str, step: int, attempt: int, place: int) -> None:
        """Begins the parts of a checkpoint that the caller commits."""
    def parts_written(self, table: int, attempt: int) -> int | None:
        """Returns how many there are; None: they are being written. Does not block."""
    def load(self, table: int, folder: str, step: int, weights_only: bool) -> int:
        """Returns the table's steps in this checkpoint; adopt() goes on with them."""
    def adopt(self, table: int) -> None: ...
    def adopt_steps(self, table: int, steps: int) -> None: ...
    def set_lr(self, table: int, lr: float) -> None: ...
    def steps(self, table: int) -> int: ...
    def copies(self, table: int) -> int: ...
    @property
    def serves(self) -> bool:
        """This process is one of the job's servers."""
    def leave(self) -> None:
        """Ends this process's server once no rank uses tables any more; blocks until then."""
