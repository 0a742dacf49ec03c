"""Fixes that several checks give."""
