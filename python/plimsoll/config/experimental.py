"""`tf.config.experimental`: older names, and what memory there is."""

from plimsoll.config._devices import LogicalDeviceConfiguration as VirtualDeviceConfiguration  # noqa: F401
from plimsoll.config._devices import get_logical_device_configuration as get_virtual_device_configuration  # noqa: F401
from plimsoll.config._devices import get_memory_growth as get_memory_growth
from plimsoll.config._devices import get_memory_info as get_memory_info
from plimsoll.config._devices import get_visible_devices as get_visible_devices
from plimsoll.config._devices import list_logical_devices as list_logical_devices
from plimsoll.config._devices import list_physical_devices as list_physical_devices
from plimsoll.config._devices import reset_memory_stats as reset_memory_stats
from plimsoll.config._devices import set_logical_device_configuration as set_virtual_device_configuration  # noqa: F401
from plimsoll.config._devices import set_memory_growth as set_memory_growth
from plimsoll.config._devices import set_visible_devices as set_visible_devices


def get_memory_usage(device):
    """The bytes that the process holds."""
    return get_memory_info(device)["current"]


def get_device_details(device):
    """Nothing to tell of a CPU."""
    return {}


def enable_op_determinism():
    """Results never depend on the number of threads: there is nothing to switch on."""


def enable_tensor_float_32_execution(enabled):
    """Accepted: there is no such arithmetic on a CPU."""


def tensor_float_32_execution_enabled():
    """There is no such arithmetic on a CPU."""
    return False


def enable_mlir_graph_optimization():
    """Accepted."""


def set_synchronous_execution(enable):
    """Accepted: what is recorded runs in its order."""


def get_synchronous_execution():
    """What is recorded runs in its order."""
    return True
