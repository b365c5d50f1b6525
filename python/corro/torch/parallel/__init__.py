"""Trains a model by a plan: micro-batches over ranks, layers over stages."""
