"""The transport port and its adapters: paho-mqtt, and in memory with programmable faults."""
