"""Roaring bitmaps beside CRoaring and the figures that Paimon's PIP-16 published."""
