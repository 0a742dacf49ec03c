"""What is sent to a node while pairs are measured: its own small programs, for any Python from 3.8 on.

They import each other and the standard library only; the crew sends them as text (see `crew.program`).
"""
