"""`tf.distribute`: the strategies with one replica. The same programs run; there is nothing to distribute to."""

import contextlib
import json
import os

from plimsoll import _engine as engine
from plimsoll import nest
from plimsoll._core import convert_to_tensor
from plimsoll.data import Dataset


class ReduceOp:
    """How values of replicas become one."""

    SUM, MEAN = "SUM", "MEAN"


class InputReplicationMode:
    """Accepted: there is one replica."""

    PER_WORKER, PER_REPLICA = "PER_WORKER", "PER_REPLICA"


class InputContext:
    """Which part of the input a worker takes: all of it."""

    num_input_pipelines, input_pipeline_id, num_replicas_in_sync = 1, 0, 1

    def get_per_replica_batch_size(self, global_batch_size):
        """The size of a replica's batches."""
        return global_batch_size


class InputOptions:
    """Accepted: there is one replica."""

    def __init__(self, **options):
        vars(self).update(options)


class ValueContext:
    """Which replica a value is made for: the only one."""

    replica_id_in_sync_group, num_replicas_in_sync = 0, 1


class ReplicaContext:
    """Where a function of replicas runs."""

    replica_id_in_sync_group, num_replicas_in_sync = 0, 1

    def __init__(self, strategy):
        self.strategy = strategy

    def all_reduce(self, reduce_op, value, options=None):
        """The value itself."""
        return value

    def merge_call(self, merge_fn, args=(), kwargs=None):
        """Calls a function for all replicas."""
        return merge_fn(self.strategy, *args, **(kwargs or {}))


_current = []


class Strategy:
    """Where variables live and functions run: here."""

    num_replicas_in_sync = 1

    @contextlib.contextmanager
    def scope(self):
        """What is made inside belongs to the strategy."""
        _current.append(self)
        try:
            yield self
        finally:
            _current.pop()

    def run(self, fn, args=(), kwargs=None, options=None):
        """Calls a function on every replica."""
        return fn(*args, **(kwargs or {}))

    def reduce(self, reduce_op, value, axis=None):
        """Values of all replicas as one; along `axis` too if that is given."""
        if axis is None:
            return value
        from plimsoll import math

        how = math.reduce_mean if str(reduce_op).upper().endswith("MEAN") else math.reduce_sum
        return nest.map_structure(lambda x: how(x, axis=axis), value)

    def gather(self, value, axis):
        """Values of all replicas side by side."""
        return convert_to_tensor(value)

    def experimental_distribute_dataset(self, dataset, options=None):
        """The data set itself: its batches are those of the one replica."""
        return dataset

    def distribute_datasets_from_function(self, dataset_fn, options=None):
        """What a function of the input context gives."""
        return dataset_fn(InputContext())

    experimental_distribute_datasets_from_function = distribute_datasets_from_function

    def experimental_distribute_values_from_function(self, value_fn):
        """What a function gives for the one replica."""
        return value_fn(ValueContext())

    def experimental_local_results(self, value):
        """The values of the replicas here."""
        return (value,)

    def make_dataset_iterator(self, dataset):
        """An iterator."""
        return iter(dataset)

    @property
    def extended(self):
        """Further settings."""
        return self

    @property
    def cluster_resolver(self):
        """There is no cluster."""
        return None


class MirroredStrategy(Strategy):
    """Copies of variables on every device: there is one."""

    def __init__(self, devices=None, cross_device_ops=None):
        self._devices = list(devices or ["/cpu:0"])
        if len(self._devices) > 1:
            raise ValueError(f"{len(self._devices)} replicas were asked for, but there is one device: the CPU")


class OneDeviceStrategy(Strategy):
    """Everything on one device."""

    def __init__(self, device="/cpu:0"):
        self._device = device


class MultiWorkerMirroredStrategy(Strategy):
    """Several workers: a cluster of one here. More are started by `mpirun plimsoll train`."""

    def __init__(self, cluster_resolver=None, communication_options=None):
        workers = json.loads(os.environ.get("TF_CONFIG") or "{}").get("cluster", {}).get("worker", [])
        if len(workers) > 1:
            raise ValueError(f"TF_CONFIG names {len(workers)} workers; only a cluster of one runs through this module")


CentralStorageStrategy = MirroredStrategy


class experimental:
    """Older names."""

    CentralStorageStrategy = MirroredStrategy
    MultiWorkerMirroredStrategy = MultiWorkerMirroredStrategy


class NcclAllReduce:
    """Accepted: there is nothing to reduce over."""

    def __init__(self, num_packs=1):
        pass


HierarchicalCopyAllReduce = ReductionToOneDevice = NcclAllReduce


def has_strategy():
    """Whether there is a strategy around."""
    return bool(_current)


def get_strategy():
    """The strategy around, or the one of a single device."""
    return _current[-1] if _current else Strategy()


def get_replica_context():
    """Where a function of replicas runs."""
    return ReplicaContext(get_strategy())


def in_cross_replica_context():
    """Whether all replicas are meant."""
    return bool(_current)


DistributedDataset = Dataset
DistributedValues = engine.Tensor
