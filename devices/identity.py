"""Who a device and a machine are.

Owns stable ids and the hardware fingerprint; never uses an enumeration index.

Ids are hashes keyed by the machine id: stable across reboots, and nothing about the
machine can be read from them.
"""

from __future__ import annotations

import hashlib
import hmac

from devices.reader import SysReader

#: Firmware's own serial numbers, strongest first. Most are readable by root only.
_SERIALS = (
    "/sys/class/dmi/id/product_uuid",
    "/sys/class/dmi/id/product_serial",
    "/sys/class/dmi/id/board_serial",
    "/proc/device-tree/serial-number",
)
#: What vendors leave in a serial number that they never filled in.
_PLACEHOLDERS = (
    "none",
    "default string",
    "to be filled",
    "not specified",
    "system serial number",
    "00000000",
)


def device_id(device_class: str, path: str, reader: SysReader) -> str:
    """Return `<class>-<12 hex>` for the device at a topology path, for example `cpu` or a PCI address."""
    machine = reader.text("/etc/machine-id").or_else("no-machine-id")
    digest = hmac.new(machine.encode(), path.encode(), hashlib.sha256).hexdigest()
    return f"{device_class}-{digest[:12]}"


def hardware_id(reader: SysReader, cpu_model: str) -> str:
    """Return a fingerprint of the hardware, `<source>-<16 hex>`, the same after a reinstallation.

    source: firmware (a serial number), network (addresses of built-in network cards) or install (only the
    machine id could be read, which a copied disk carries along: the weakest). Two ids of
    different source do not compare.
    """
    serial = _serial(reader)
    if serial:
        return _fingerprint("firmware", serial)
    addresses = _built_in_addresses(reader)
    if addresses:
        return _fingerprint("network", cpu_model, *addresses)
    return _fingerprint("install", cpu_model, reader.text("/etc/machine-id").or_else(""))


def _fingerprint(source: str, *parts: str) -> str:
    return f"{source}-{hashlib.sha256('|'.join(parts).encode()).hexdigest()[:16]}"


def _serial(reader: SysReader) -> str:
    for path in _SERIALS:
        serial = reader.text(path).or_else("").strip().lower()
        if serial and not serial.startswith(_PLACEHOLDERS):
            return serial
    return ""


def _built_in_addresses(reader: SysReader) -> tuple[str, ...]:
    """Addresses of network cards that sit on a bus other than USB: those cannot be pulled out."""
    found = []
    for name in reader.names("/sys/class/net").or_else(()):
        target = reader.target(f"/sys/class/net/{name}").or_else("")
        if "/virtual/" in target or "/usb" in target or not reader.exists(f"/sys/class/net/{name}/device"):
            continue
        address = reader.text(f"/sys/class/net/{name}/address").or_else("")
        if address.strip("0:"):
            found.append(address)
    return tuple(sorted(found))
