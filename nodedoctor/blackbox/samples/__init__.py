"""Samples of a running job, and what they say: does it go on, does it hang, and until when is there time?"""
