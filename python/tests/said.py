"""What the ranks of coordinator_worker.py say."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

WORKER = Path(__file__).with_name("coordinator_worker.py")
PATIENCE = 120.0


def until(what: str, condition: Callable[[], Any], log: Callable[[], str] = str) -> Any:
    """Waits until the condition holds; returns what it gave."""
    end = time.monotonic() + PATIENCE
    while not (answer := condition()):
        assert time.monotonic() < end, f"it was waited in vain for: {what}\n{log()}"
        time.sleep(0.02)
    return answer


class Said:
    """What the ranks of coordinator_worker.py say in a folder of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.said = folder / "said"
        self.said.mkdir()

    def logs(self) -> str:
        """All that is there to explain a failure."""
        return ""

    def facts(self) -> dict[int, list[dict[str, Any]]]:
        """What each rank's process has said, by process."""
        said = {}
        for path in self.said.glob("*.jsonl"):
            lines = path.read_text().splitlines(keepends=True)
            said[int(path.stem)] = [json.loads(line) for line in lines if line.endswith("\n")]
        return said

    def newest(self) -> dict[str, Any]:
        """The newest step of all."""
        last = [facts[-1] for facts in self.facts().values() if facts]
        return max(last, key=lambda fact: (fact["epoch"], fact["step"]), default={"step": 0})

    def steps(self, count: int) -> dict[str, Any]:
        """Waits for so many more steps."""
        first = self.newest()["step"]
        until(f"{count} steps", lambda: self.newest()["step"] >= first + count, self.logs)
        return self.newest()

    def size(self, ranks: int) -> None:
        """Waits until so many ranks step together, and each has said so."""

        def together() -> set[int]:
            epoch = self.newest().get("epoch")
            all_said = [fact for said in self.facts().values() for fact in said]
            now = [fact for fact in all_said if (fact["epoch"], fact["size"]) == (epoch, ranks)]
            return {fact["rank"] for fact in now}

        until(f"{ranks} ranks", lambda: len(together()) == ranks, self.logs)

    def process_on(self, host: str) -> int:
        """Of the rank that runs on this host."""

        def there() -> list[int]:
            return [pid for pid, said in self.facts().items() if said and said[-1]["host"] == host]

        until(f"a rank on {host}", lambda: bool(there()), self.logs)
        return max(there(), key=lambda pid: Path(f"/proc/{pid}").exists())

    def finish(self) -> None:
        """Has the ranks end their work."""
        (self.said / "end").touch()
