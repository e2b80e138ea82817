"""The faithful twin: the real agent and coordinator with their real SQLite, on a virtual clock.

Each process has an event loop of its own that the world turns; what cannot exist here (accelerators, wires,
other machines' clocks) is emulated and labelled so.
"""
