"""The black box: it watches a running job, and when the job hangs it keeps what says why.

`watch.py` is the loop; samples come from `sampler.py`, `suspected_hang.py` judges them, `capture.py` looks at
every rank, `verdict.py` says what it means, `folder.py` keeps all of it. `arm.py` and `start.py` are what
`run` adds.
"""
