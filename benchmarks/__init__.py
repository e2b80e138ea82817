"""What Skerry costs and how fast it is, measured on the machine at hand beside what it is compared with.

`python -m benchmarks [NAME] [--quick] [--json]`; one module a benchmark, listed in `benchmarks/registry.py`.
"""
