"""Export as a SavedModel, which needs TensorFlow's runtime and so is refused."""


class PlimsollExportArchive:
    """Stands where a backend that can write SavedModels has its writer."""

    def __init__(self):
        raise NotImplementedError("the plimsoll backend writes no SavedModel; save the model with `model.save('model.keras')`")
