"""The fleet on a virtual clock, for rehearsing faults, load and policies."""
