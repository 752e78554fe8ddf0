"""ResNet-50 as DeepView entry points, which gpuplan reads unchanged.

Source: the provider functions of CentML/DeepView.Profile, docs/providers.md. The network itself is
`resnet50.py` in this folder.
"""

import torch
import torch.nn.functional as F
from resnet50 import ResNet50


def deepview_model_provider():
    return ResNet50(classes=1000)


def deepview_input_provider(batch_size=32):
    return torch.randn(batch_size, 3, 224, 224), torch.randint(1000, (batch_size,))


def deepview_iteration_provider(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def iteration(images, labels):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()

    return iteration
