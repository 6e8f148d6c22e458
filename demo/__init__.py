"""Two demonstrations on real data: the flight board, and the manual while it is being written.

Owns the flight board, lancemem's main job, run by ``python -m demo.flight_board``: its events, its
reference state, its measurements and its picture. The package ``demo.manual`` is the demonstration
of search. Neither is part of the ``lancemem`` package; both use only that package's public names.
"""
