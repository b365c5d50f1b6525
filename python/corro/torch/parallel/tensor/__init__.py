"""Tensor parallelism: the ranks of an axis compute one sample together, each with its part.

division.py says how a tensor is divided, split.py is such a tensor, shapes.py and products.py are
the rules of torch's functions, tokens.py divides what lies between products, choice.py finds which
parameters are divided, parts.py keeps them.
"""

from corro.torch.parallel.tensor import products, shapes
from corro.torch.parallel.tensor.division import Axis, Division
from corro.torch.parallel.tensor.experts import experts
from corro.torch.parallel.tensor.split import RULES, Call, Split, rule

RULES.update({**shapes.RULES, **products.RULES})

__all__ = ["Axis", "Call", "Division", "Split", "experts", "rule"]
