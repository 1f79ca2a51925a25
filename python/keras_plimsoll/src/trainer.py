"""`fit`, `evaluate` and `predict`: stateful and shaped like TensorFlow's, with the step traced into one planned program.

`train_step(self, data)` runs once for each shape of a batch; what it records is planned under the memory limit and runs
for every batch of that shape. An overridden `train_step` is traced the same way. Batches come as NumPy arrays; arrays
given to `fit` are cut and converted batch by batch, never copied as a whole.

Between two batches at which a callback wants to be called, steps follow each other without looking at any result.
"""

import time
import warnings

import numpy as np
from keras.src import backend
from keras.src import callbacks as callbacks_module
from keras.src import optimizers as optimizers_module
from keras.src import tree
from keras.src.backend import config
from keras.src.losses import loss as loss_module
from keras.src.trainers import trainer as base_trainer
from keras.src.trainers.data_adapters import array_slicing
from keras.src.trainers.data_adapters import data_adapter_utils
from keras.src.utils import traceback_utils
from keras.src.utils.python_utils import pythonify_logs
from plimsoll import _engine as engine
from plimsoll import _keras_data

from keras_plimsoll.src import notebook
from keras_plimsoll.src import record
from keras_plimsoll.src.core import convert_to_numpy
from keras_plimsoll.src.feed import EpochIterator

notebook.install()
_keras_data.install()

# A stretch of steps between two looks at the results lasts about so long.
_LOOK_EVERY = 0.1


class PlimsollTrainer(base_trainer.Trainer):
    """The trainer of every Keras model on this backend."""

    def __init__(self):
        super().__init__()
        self.train_function = None
        self.test_function = None
        self.predict_function = None

    # Steps

    def train_step(self, data):
        x, y, sample_weight = data_adapter_utils.unpack_x_y_sample_weight(data)
        with record.tape():
            y_pred = self._predictions(x, training=True)
            loss = self._compute_loss(x=x, y=y, y_pred=y_pred, sample_weight=sample_weight, training=True)
            self._track_loss(loss, x)
            if self.optimizer is not None:
                loss = self.optimizer.scale_loss(loss)
            weights = self.trainable_weights
            gradients = record.gradients(loss, weights) if weights else []
        if weights:
            self.optimizer.apply_gradients(zip(gradients, weights))
        else:
            warnings.warn("The model does not have any trainable weights.")
        return self.compute_metrics(x, y, y_pred, sample_weight=sample_weight)

    def test_step(self, data):
        x, y, sample_weight = data_adapter_utils.unpack_x_y_sample_weight(data)
        y_pred = self._predictions(x, training=False)
        loss = self._compute_loss(x=x, y=y, y_pred=y_pred, sample_weight=sample_weight, training=False)
        self._track_loss(loss, x)
        return self.compute_metrics(x, y, y_pred, sample_weight=sample_weight)

    def predict_step(self, data):
        x, _, _ = data_adapter_utils.unpack_x_y_sample_weight(data)
        return self._predictions(x, training=False)

    def _predictions(self, x, training):
        return self(x, training=training) if self._call_has_training_arg else self(x)

    def _track_loss(self, loss, x):
        rows = next(leaf for leaf in tree.flatten(x) if leaf is not None).shape[0]
        self._loss_tracker.update_state(loss_module.unscale_loss_for_distribution(loss), sample_weight=rows)

    def _build(self, step, **data):
        """Makes the variables that the step needs. One that was overridden makes them when it is traced: what it calls, nobody else knows."""
        if getattr(type(self), step.__name__) is getattr(PlimsollTrainer, step.__name__):
            self._symbolic_build(**data)

    # Functions of batches

    def _step_function(self, step, name):
        """`step` over a batch: traced, or as it stands with `run_eagerly`."""

        def on_tensors(data):
            return step(tree.map_structure(backend.convert_to_tensor, data, none_is_leaf=False))

        if self.run_eagerly:
            return on_tensors
        return record.Function(on_tensors, f"{type(self).__name__}.{name}")

    def _make_function(self, step, name):
        one_step = self._step_function(step, name)

        def function(batches):
            """Runs the steps of one execution and gives what the last one returned."""
            outputs = None
            for _, batch in zip(range(self.steps_per_execution), batches):
                outputs = one_step(batch)
                engine.flush()
            return outputs

        function.one_step = one_step
        return function

    def make_train_function(self, force=False):
        if self.train_function is None or force:
            self.train_function = self._make_function(self.train_step, "train_step")
        return self.train_function

    def make_test_function(self, force=False):
        if self.test_function is None or force:
            self.test_function = self._make_function(self.test_step, "test_step")
        return self.test_function

    def make_predict_function(self, force=False):
        if self.predict_function is None or force:
            one_step = self._step_function(self.predict_step, "predict_step")

            def function(batches):
                outputs = [tree.map_structure(convert_to_numpy, one_step(batch)) for batch in batches]
                return outputs[0] if len(outputs) == 1 else tree.map_structure(lambda *xs: np.concatenate(xs), *outputs)

            function.one_step = one_step
            self.predict_function = function
        return self.predict_function

    # Loops

    @traceback_utils.filter_traceback
    def fit(
        self,
        x=None,
        y=None,
        batch_size=None,
        epochs=1,
        verbose="auto",
        callbacks=None,
        validation_split=0.0,
        validation_data=None,
        shuffle=True,
        class_weight=None,
        sample_weight=None,
        initial_epoch=0,
        steps_per_epoch=None,
        validation_steps=None,
        validation_batch_size=None,
        validation_freq=1,
        **old,
    ):
        _accept_old_arguments("fit", old)
        self._assert_compile_called("fit")
        max_epochs = config.max_epochs()
        if max_epochs and max_epochs < epochs:
            warnings.warn("Limiting epochs to %d" % max_epochs)
            epochs = max_epochs

        self._eval_epoch_iterator = None
        if validation_split and validation_data is None:
            (x, y, sample_weight), validation_data = array_slicing.train_validation_split(
                (x, y, sample_weight), validation_split=validation_split
            )
        if validation_data is not None:
            val_x, val_y, val_sample_weight = data_adapter_utils.unpack_x_y_sample_weight(validation_data)

        epoch_iterator = EpochIterator(
            x=x,
            y=y,
            sample_weight=sample_weight,
            batch_size=batch_size,
            steps_per_epoch=steps_per_epoch,
            shuffle=shuffle,
            class_weight=class_weight,
            steps_per_execution=self.steps_per_execution,
        )
        self._build(self.train_step, iterator=epoch_iterator)
        epoch_iterator.reset()

        callbacks = self._callback_list(callbacks, verbose, epochs, epoch_iterator, add_history=True)
        self.stop_training = False
        self.make_train_function()
        callbacks.on_train_begin()
        training_logs, logs = None, {}
        for epoch in range(self._initial_epoch or initial_epoch, epochs):
            self.reset_metrics()
            callbacks.on_epoch_begin(epoch)
            logs = self._run_epoch(
                epoch_iterator,
                self.train_function,
                (callbacks.on_train_batch_begin, callbacks.on_train_batch_end),
                _wants_every_batch(callbacks, "train"),
                lambda: self.stop_training,
                logs,
            )
            epoch_logs = dict(pythonify_logs(self._get_metrics_result_or_logs(logs)))
            if validation_data is not None and self._should_eval(epoch, validation_freq):
                if getattr(self, "_eval_epoch_iterator", None) is None:
                    self._eval_epoch_iterator = EpochIterator(
                        x=val_x,
                        y=val_y,
                        sample_weight=val_sample_weight,
                        batch_size=validation_batch_size or batch_size,
                        steps_per_execution=self.steps_per_execution,
                        steps_per_epoch=validation_steps,
                        shuffle=False,
                    )
                val_logs = self.evaluate(
                    x=val_x,
                    y=val_y,
                    sample_weight=val_sample_weight,
                    batch_size=validation_batch_size or batch_size,
                    steps=validation_steps,
                    callbacks=callbacks,
                    return_dict=True,
                    _use_cached_eval_dataset=True,
                )
                epoch_logs.update({f"val_{name}": value for name, value in val_logs.items()})
            callbacks.on_epoch_end(epoch, epoch_logs)
            training_logs = epoch_logs
            if self.stop_training:
                break

        if isinstance(self.optimizer, optimizers_module.Optimizer) and epochs > 0:
            self.optimizer.finalize_variable_values(self.trainable_weights)
        if getattr(self, "_eval_epoch_iterator", None) is not None:
            del self._eval_epoch_iterator
        callbacks.on_train_end(logs=training_logs)
        return self.history

    @traceback_utils.filter_traceback
    def evaluate(
        self,
        x=None,
        y=None,
        batch_size=None,
        verbose="auto",
        sample_weight=None,
        steps=None,
        callbacks=None,
        return_dict=False,
        **kwargs,
    ):
        self._assert_compile_called("evaluate")
        cached = kwargs.pop("_use_cached_eval_dataset", False)
        _accept_old_arguments("evaluate", kwargs)
        if cached:
            epoch_iterator = self._eval_epoch_iterator
        else:
            epoch_iterator = EpochIterator(
                x=x,
                y=y,
                sample_weight=sample_weight,
                batch_size=batch_size,
                steps_per_epoch=steps,
                shuffle=False,
                steps_per_execution=self.steps_per_execution,
            )
        self._build(self.test_step, iterator=epoch_iterator)
        epoch_iterator.reset()

        callbacks = self._callback_list(callbacks, verbose, 1, epoch_iterator)
        self.make_test_function()
        self.stop_evaluating = False
        callbacks.on_test_begin()
        self.reset_metrics()
        logs = self._run_epoch(
            epoch_iterator,
            self.test_function,
            (callbacks.on_test_batch_begin, callbacks.on_test_batch_end),
            _wants_every_batch(callbacks, "test"),
            lambda: self.stop_evaluating,
            {},
        )
        logs = pythonify_logs(self._get_metrics_result_or_logs(logs))
        callbacks.on_test_end(logs)
        return logs if return_dict else self._flatten_metrics_in_order(logs)

    @traceback_utils.filter_traceback
    def predict(self, x, batch_size=None, verbose="auto", steps=None, callbacks=None, **old):
        _accept_old_arguments("predict", old)
        epoch_iterator = EpochIterator(
            x=x,
            batch_size=batch_size,
            steps_per_epoch=steps,
            shuffle=False,
            steps_per_execution=self.steps_per_execution,
        )
        if not all(layer.built for layer in self._flatten_layers()):
            for _, _, batches in epoch_iterator:
                x_of = data_adapter_utils.unpack_x_y_sample_weight(batches[0])[0]
                with backend.StatelessScope():
                    self(x_of)
                break
            epoch_iterator.reset()
        callbacks = self._callback_list(callbacks, verbose, 1, epoch_iterator)
        self.make_predict_function()
        self.stop_predicting = False
        callbacks.on_predict_begin()
        parts = None
        for begin, end, batches in epoch_iterator:
            callbacks.on_predict_batch_begin(begin)
            outputs = self.predict_function(batches)
            parts = _appended(parts, outputs)
            callbacks.on_predict_batch_end(end, {"outputs": outputs})
            if self.stop_predicting:
                break
        callbacks.on_predict_end()
        return tree.map_structure_up_to(outputs, np.concatenate, parts)

    def _run_epoch(self, epoch_iterator, function, hooks, every_batch, stopped, logs):
        """The executions of one epoch; the hooks see each of them, or one in a while if none needs every batch."""
        feed = None if every_batch else epoch_iterator.array_feed()
        one_step = getattr(function, "one_step", None)
        if feed is not None and isinstance(one_step, record.Function):
            return self._run_stretches(feed, one_step, hooks, stopped, logs)
        since, first = time.perf_counter(), None
        for begin, end, batches in epoch_iterator:
            if first is None:
                hooks[0](begin)
                first = begin
            logs = function(batches)
            if not every_batch and isinstance(one_step, record.Function) and begin:
                # After the first step, which may have been traced and planned.
                ahead, count = epoch_iterator.run_ahead(one_step, batches[-1], end + 1, _LOOK_EVERY)
                logs, end = (ahead, end + count) if count else (logs, end)
            now = time.perf_counter()
            if every_batch or now - since > _LOOK_EVERY or end + 1 == epoch_iterator.num_batches:
                hooks[1](end, pythonify_logs(logs))
                since, first = now, None
                if stopped():
                    break
        else:
            if first is not None:
                hooks[1](end, pythonify_logs(logs))
        return logs

    def _run_stretches(self, feed, step, hooks, stopped, logs):
        """An epoch over arrays, in stretches of steps that run without Python between them."""
        order, size, whole = feed.order(), feed.batch_size, feed.whole()
        total, full = -(-feed.count // size), feed.count // size
        # The first step is traced and planned, and says nothing of how long those to come will take.
        done, pace, longest = 0, _LOOK_EVERY, 1
        while done < total and not stopped():
            steps = max(1, min(full - done, longest, int(_LOOK_EVERY / pace)))
            hooks[0](done)
            begun = time.perf_counter()
            first, last = done * size, min((done + steps) * size, feed.count)
            if steps == 1:
                logs = step(feed.rows(order, first, last))
            elif whole is not None and order is not None:
                logs = step.steps(whole, size, steps, order[first:last])
            else:
                logs = step.steps(feed.rows(order, first, last), size, steps)
            engine.flush()
            if done:
                pace = max((time.perf_counter() - begun) / steps, 1e-6)
            else:
                longest = total if whole is not None else feed.longest_stretch(feed.rows(order, first, last))
            done += steps
            hooks[1](done - 1, pythonify_logs(logs))
        return logs

    def _callback_list(self, callbacks, verbose, epochs, epoch_iterator, add_history=False):
        if isinstance(callbacks, callbacks_module.CallbackList):
            return callbacks
        return callbacks_module.CallbackList(
            callbacks,
            add_history=add_history,
            add_progbar=verbose != 0,
            verbose=verbose,
            epochs=epochs,
            steps=epoch_iterator.num_batches,
            model=self,
        )

    # Single batches

    def train_on_batch(self, x, y=None, sample_weight=None, class_weight=None, return_dict=False):
        self._assert_compile_called("train_on_batch")
        if class_weight is not None:
            if sample_weight is not None:
                raise ValueError(
                    "Arguments `sample_weight` and `class_weight` cannot be specified at the same time. "
                    f"Received: sample_weight={sample_weight}, class_weight={class_weight}"
                )
            sample_weight = data_adapter_utils.class_weight_to_sample_weights(y, class_weight)
        batch = _as_arrays((x, y, sample_weight))
        self._build(self.train_step, data_batch=batch)
        self.make_train_function()
        self.reset_metrics()
        logs = pythonify_logs(self.train_function([batch]))
        return logs if return_dict else self._flatten_metrics_in_order(logs)

    def test_on_batch(self, x, y=None, sample_weight=None, return_dict=False):
        self._assert_compile_called("test_on_batch")
        batch = _as_arrays((x, y, sample_weight))
        self._build(self.test_step, data_batch=batch)
        self.make_test_function()
        self.reset_metrics()
        logs = pythonify_logs(self.test_function([batch]))
        return logs if return_dict else self._flatten_metrics_in_order(logs)

    def predict_on_batch(self, x):
        if not all(layer.built for layer in self._flatten_layers()):
            with backend.StatelessScope():
                self(_as_arrays(x))
        self.make_predict_function()
        return self.predict_function([(_as_arrays(x),)])

    # Plans

    def plan(self, x, y=None, batch_size=32, sample_weight=None):
        """The plan of a training step for batches of `batch_size` rows of this data, without running it.

        A step that does not fit into the memory limit is refused with a `WouldNotFitError`, which tells the smallest limit
        that would do.
        """
        from plimsoll._plan import plan_of

        self._assert_compile_called("plan")
        rows = lambda v: np.zeros((batch_size, *v.shape[1:]), v.dtype)
        data = data_adapter_utils.pack_x_y_sample_weight(x, y, sample_weight)
        batch = tree.map_structure(rows, _as_arrays(data), none_is_leaf=False)
        self._build(self.train_step, data_batch=batch)
        function = self.make_train_function().one_step
        if not isinstance(function, record.Function):
            raise ValueError("with `run_eagerly=True` a step runs operation by operation and has no plan")
        return plan_of(function.program(batch).program)


def _accept_old_arguments(method, given):
    """Arguments that Keras 3 dropped: they say how data is fetched, which the engine decides itself."""
    old = {"workers", "use_multiprocessing", "max_queue_size"} & set(given)
    if old:
        names = ", ".join(f"`{name}`" for name in sorted(old))
        warnings.warn(f"{names} of `{method}` have no effect: the input is prefetched as memory allows", stacklevel=3)
    unknown = set(given) - old
    if unknown:
        raise ValueError(f"Arguments not recognized: { {name: given[name] for name in sorted(unknown)} }")


def _wants_every_batch(callbacks, mode):
    """Whether a callback other than Keras' own history and progress bar has something to do at every batch."""
    own = (callbacks_module.History, callbacks_module.ProgbarLogger)
    names = [f"on_{mode}_batch_begin", f"on_{mode}_batch_end"]
    names += ["on_batch_begin", "on_batch_end"] if mode == "train" else []
    base = callbacks_module.Callback
    return any(
        getattr(type(callback), name, None) is not getattr(base, name) or name in vars(callback)
        for callback in callbacks.callbacks
        if type(callback) not in own
        for name in names
    )


def _appended(parts, outputs):
    if parts is None:
        return tree.map_structure(lambda y: [y], outputs)
    tree.map_structure_up_to(outputs, lambda y, part: part.append(y), outputs, parts)
    return parts


def _as_arrays(data):
    return tree.map_structure(_as_array, data, none_is_leaf=False)


def _as_array(x):
    return x if hasattr(x, "shape") and hasattr(x, "dtype") else np.asarray(x)
