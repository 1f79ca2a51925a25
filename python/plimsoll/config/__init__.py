"""`tf.config`: devices and their memory. A `memory_limit` is honoured on the CPU."""

import os

from plimsoll._function import functions_run_eagerly as functions_run_eagerly
from plimsoll._function import run_functions_eagerly as run_functions_eagerly
from plimsoll.config._devices import LogicalDevice as LogicalDevice
from plimsoll.config._devices import LogicalDeviceConfiguration as LogicalDeviceConfiguration
from plimsoll.config._devices import PhysicalDevice as PhysicalDevice
from plimsoll.config._devices import get_logical_device_configuration as get_logical_device_configuration
from plimsoll.config._devices import get_visible_devices as get_visible_devices
from plimsoll.config._devices import list_logical_devices as list_logical_devices
from plimsoll.config._devices import list_physical_devices as list_physical_devices
from plimsoll.config._devices import set_logical_device_configuration as set_logical_device_configuration
from plimsoll.config._devices import set_visible_devices as set_visible_devices
from plimsoll.config import experimental as experimental
from plimsoll.config import optimizer as optimizer
from plimsoll.config import threading as threading


def get_soft_device_placement():
    """Names of devices that are not there fall back on one that is."""
    return True


def set_soft_device_placement(enabled):
    """Accepted: there is one device."""


def experimental_connect_to_cluster(*args, **kwargs):
    """Not supported."""
    raise NotImplementedError("clusters are joined by MPI: see `plimsoll train --help`")


def cpu_count():
    """The processors that may be used."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()

