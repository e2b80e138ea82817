"""The protocol between edge and cloud, without I/O: cores take events with the time and return actions."""
