"""The manual while it is being written: search of a changing corpus.

Owns the demonstration of search, run by ``python -m demo.manual``: ten releases of Django's
documentation as edits of one table, a second process that searches it meanwhile, and the proof of
the answers. It is not part of the ``lancemem`` package and uses only that package's public names.
"""
