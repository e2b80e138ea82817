"""Trainers that need neither torch nor recorded experience: for measurements and for tests of equality."""
