"""Checks of InfiniBand and RoCE."""
