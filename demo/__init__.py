"""The flight board: lancemem's main job on real data, run by ``python -m demo.flight_board``.

Owns the demonstration: its events, its reference state, its measurements and its picture. It is not
part of the ``lancemem`` package and uses only that package's public names.
"""
