"""Runs a model by every plan of data and pipeline parallelism, and compares with predictions.

In this order, on every rank: chain.py cuts the model into the planner's layers, profile.py measures
each layer, candidates.py has the planner predict each plan, running.py runs each as a loaded plan,
report.py shows both. corro/torch/measure.py is the command.
"""
