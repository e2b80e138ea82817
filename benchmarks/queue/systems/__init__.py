"""One adapter a system: what is measured, put behind `benchmarks.queue.port.Queue`."""
