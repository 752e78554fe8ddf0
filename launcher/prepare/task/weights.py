"""The pretrained weights of a launch, as its nodes find them. Reads headers alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path, PurePosixPath

from ....catalog.errors import UsageError
from ...runner.training_options import TrainingOptions
from ...runner.weights.files import stored_tensors
from ...task_file import WORKDIR
from ..project import Project
from ..request import LaunchRequest


def weights_on_node(request: LaunchRequest, project: Project) -> TrainingOptions:
    """Return the options of training whose weights are named as a node finds them.

    They lie in the folder that is sent, or in a bucket that `--data` puts on the nodes, or in the
    folder that all nodes share.

    Raises:
        UsageError: the nodes would not find them, or those that are here cannot be read.
    """
    training = request.training
    if training.weights is None or _is_on_nodes(training.weights, request):
        return training
    path = Path(training.weights).expanduser().absolute()
    if not path.is_relative_to(project.workdir):
        raise UsageError(
            f"{path} is not in {project.workdir}, the folder that is sent to the nodes.",
            fix="put the weights in a bucket, --data s3://bucket/folder:/weights, and give"
            " --weights /weights; or give --workdir a folder that holds them.",
        )
    stored_tensors(path)
    place = PurePosixPath("..", WORKDIR, *path.relative_to(project.workdir).parts)
    return replace(training, weights=str(place))


def _is_on_nodes(weights: str, request: LaunchRequest) -> bool:
    folders = [mount.target for mount in request.data]
    folders += [request.shared] if request.shared is not None else []
    place = PurePosixPath(weights)
    return any(place.is_relative_to(folder) for folder in folders)
