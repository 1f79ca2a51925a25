"""Physical devices, and the logical ones they are divided into, each with its limit."""

from collections import namedtuple

from plimsoll import _engine as engine
from plimsoll._limit import set_memory_limit

PhysicalDevice = namedtuple("PhysicalDevice", ["name", "device_type"])
LogicalDevice = namedtuple("LogicalDevice", ["name", "device_type"])

_CPU = PhysicalDevice("/physical_device:CPU:0", "CPU")


class LogicalDeviceConfiguration:
    """One part of a device: `memory_limit` is in MiB, as TensorFlow has it."""

    def __init__(self, memory_limit=None, experimental_priority=None, experimental_device_ordinal=None):
        self.memory_limit = memory_limit
        self.experimental_priority = experimental_priority

    def __eq__(self, other):
        return isinstance(other, LogicalDeviceConfiguration) and self.memory_limit == other.memory_limit

    def __repr__(self):
        return f"LogicalDeviceConfiguration(memory_limit={self.memory_limit})"


class _State:
    configured = None
    visible = [_CPU]
    initialised = False
    growth = {}


def initialised():
    """Whether the engine has begun to work, so that devices stay as they are."""
    if not _State.initialised:
        info = engine.memory_info()
        _State.initialised = bool(info["programs"] or info["states"])
    return _State.initialised


def _require_uninitialised(what):
    if initialised():
        raise RuntimeError(f"{what} must be set before the devices have been initialized")


def list_physical_devices(device_type=None):
    """The devices of this machine: the CPU."""
    return [_CPU] if device_type in (None, "CPU") else []


def _known(device):
    if device not in (_CPU,) and tuple(device) != tuple(_CPU):
        raise ValueError(f"Unrecognized device: {device!r}")


def list_logical_devices(device_type=None):
    """The parts of devices; asking initialises them."""
    _State.initialised = True
    if device_type not in (None, "CPU"):
        return []
    count = len(_State.configured or [None])
    return [LogicalDevice(f"/device:CPU:{i}", "CPU") for i in range(count)]


def set_logical_device_configuration(device, logical_devices):
    """Divides a device. The limits of its parts add up to the limit of the process."""
    _known(device)
    _require_uninitialised("Virtual devices")
    parts = list(logical_devices)
    limits = [p.memory_limit for p in parts]
    if any(limit is not None for limit in limits):
        if None in limits:
            raise ValueError("either every logical device has a memory_limit, or none has")
        set_memory_limit(int(sum(limits) * 2**20))
    _State.configured = parts


def get_logical_device_configuration(device):
    """How a device was divided, None if it was not."""
    _known(device)
    return _State.configured


def get_visible_devices(device_type=None):
    """The devices that are used."""
    return [d for d in _State.visible if device_type in (None, d.device_type)]


def set_visible_devices(devices, device_type=None):
    """Says which devices are used."""
    _require_uninitialised("Visible devices")
    devices = list(devices) if isinstance(devices, (list, tuple)) and not isinstance(devices, PhysicalDevice) else [devices]
    for device in devices:
        _known(device)
    if device_type in (None, "CPU") and not devices:
        raise ValueError("the CPU is the only device; it cannot be hidden")


def set_memory_growth(device, enable):
    """Whether memory is taken as the plan needs it (it is), or all at once."""
    _known(device)
    if _State.growth.get(device) != bool(enable):
        _require_uninitialised("Physical devices' memory growth")
    _State.growth[device] = bool(enable)


def get_memory_growth(device):
    """Whether memory is taken as it is needed."""
    _known(device)
    return _State.growth.get(device, True)


def get_memory_info(device):
    """`current` and `peak` bytes of the process."""
    if isinstance(device, str) and "CPU" not in device.upper():
        raise ValueError(f"No device {device!r}; the devices are {[d.name for d in list_logical_devices()]}")
    info = engine.memory_info()
    return {"current": info["current"], "peak": info["peak"]}


def reset_memory_stats(device):
    """Lets the peak begin anew."""
    engine.reset_peak()
