"""Export as a SavedModel, which needs TensorFlow's runtime and so is refused."""


class PlimsollExportArchive:
    """Stands where a backend that can write SavedModels has its writer."""

    _WHY = "the plimsoll backend writes no SavedModel; save the model with `model.save('model.keras')`"

    def track(self, resource):
        raise NotImplementedError(self._WHY)

    def add_endpoint(self, name, fn, input_signature=None, **kwargs):
        raise NotImplementedError(self._WHY)
