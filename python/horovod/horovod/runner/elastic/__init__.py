"""Elastic jobs: Horovod's options of them, and hosts that a script discovers."""
