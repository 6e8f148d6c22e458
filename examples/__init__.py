"""Programs to start from; each runs by itself: `python -m examples.orders_cdc`."""
