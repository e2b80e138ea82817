"""The scenario language: what a world consists of, what it has to do, and what goes wrong when.

One language for both twins: the faithful one runs the real code on it, the array engine draws its episodes
from it.
"""
