"""`corro.Graph`: a network of services joined by channels, that all ranks of a job run.

In this order: graph.py is what users call; declared.py holds what they said and checks it;
network.py makes of each service the cells that ranks run (cells.py), forward and backward;
beginning.py starts: first_step.py runs step 0 cell by cell, which shows what channels carry, then
placing.py finds a rank for what has none; planning.py writes the plan (corro.Plan); running.py runs
it, in an order that policy.py may have made; log.py keeps what was got and given, and plays it
again; drawing.py draws.
"""

from corro.torch.services.declared import Channel
from corro.torch.services.graph import Graph
from corro.torch.services.log import Fired, Replayed
from corro.torch.services.policy import Native, Ready

__all__ = ["Channel", "Fired", "Graph", "Native", "Ready", "Replayed"]
