"""Makes a Triton Inference Server repository from an export with workflow.

    python examples/triton_repository.py served repository
    tritonserver --model-repository=repository

A request's tensor `row`, `[rows, 1]`, has a JSON object for each raw row; the response is
`probability`, `[rows, 1]`. Triton batches the rows of requests that wait at the same time. Triton's
Python needs NumPy and the model's runtime.
"""

import json
import shutil
import sys
from pathlib import Path

CONFIG = """\
name: "clicks"
backend: "python"
max_batch_size: 4096
input { name: "row" data_type: TYPE_STRING dims: [ 1 ] }
output { name: "probability" data_type: TYPE_FP32 dims: [ 1 ] }
dynamic_batching { max_queue_delay_microseconds: 500 }
version_policy { latest { num_versions: 1 } }
"""


class TritonPythonModel:
    """The model for Triton's Python backend; this file is the repository's `model.py`."""

    def initialize(self, args):
        """Open the export folder beside this file."""
        folder = Path(args["model_repository"]) / args["model_version"] / "served"
        sys.path.insert(0, str(folder))
        from score import BadValue, Scorer  # type: ignore[import-not-found]

        self.scorer, self.bad_value = Scorer(folder), BadValue

    def execute(self, requests):
        """Return a response for each request; an unusable value is an error of its request."""
        return [self.answer(request) for request in requests]

    def answer(self, request):
        """Return the scores of a request's rows."""
        import triton_python_backend_utils as triton  # type: ignore[import-not-found]

        given = triton.get_input_tensor_by_name(request, "row").as_numpy()
        try:
            scores = self.scorer.score([json.loads(text) for text in given.ravel()], "json")
        except (self.bad_value, ValueError) as error:
            return triton.InferenceResponse(error=triton.TritonError(str(error)))
        tensor = triton.Tensor("probability", scores["probability"][:, None])
        return triton.InferenceResponse(output_tensors=[tensor])


def main(served, repository, version="1"):
    """Write the repository's model `clicks`."""
    model = Path(repository) / "clicks"
    shutil.copytree(served, model / version / "served")
    shutil.copyfile(__file__, model / version / "model.py")
    (model / "config.pbtxt").write_text(CONFIG)


if __name__ == "__main__":
    main(*sys.argv[1:])
