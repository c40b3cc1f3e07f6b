# SPDX-License-Identifier: Apache-2.0
"""PP-OCR as RapidOCR ships it: where text stands in an image, which way up it is, and what it says."""

import numpy as np

from .task import Question, Trained, shipped

LINES = ("Collage for TVM", "measured, not guessed", "Zebra 4071 quick fox")
HEIGHT, WIDTH = 48, 480
PAGE = (256, 512)


def drawn(text, size=(HEIGHT, WIDTH), place=(8, 2), points=32):
    """Black text on white as an array (height, width, 3) of bytes, in matplotlib's DejaVu Sans."""
    from PIL import Image, ImageDraw, ImageFont

    font = ImageFont.truetype(str(shipped("matplotlib", "mpl-data", "fonts", "ttf", "DejaVuSans.ttf")), points)
    image = Image.new("RGB", (size[1], size[0]), "white")
    ImageDraw.Draw(image).text(place, text, fill="black", font=font)
    return np.asarray(image)


def _tensor(image, mean=0.5, deviation=0.5):
    """An image as the models take it: (1, 3, height, width), blue first, about 0."""
    scaled = (image[:, :, ::-1].astype(np.float32) / 255 - mean) / deviation
    return np.ascontiguousarray(scaled.transpose(2, 0, 1)[None], dtype=np.float32)


def _characters():
    """The characters that the recogniser tells apart, in the order of its outputs: none, then those, then a space."""
    import onnx

    proto = onnx.load(str(_file("PP-OCRv6_rec_small")))
    (listed,) = [one.value for one in proto.metadata_props if one.key == "character"]
    return ["", *listed.split("\n"), " "]


def _read(scores, characters):
    """The text of (steps, characters) scores: each step's best, repeated ones once, without those for no character."""
    best = scores.argmax(-1)
    kept = [which for at, which in enumerate(best) if which and (at == 0 or which != best[at - 1])]
    return "".join(characters[which] for which in kept)


def _ask_what(net):
    characters = _characters()
    questions = []
    for line in LINES:
        (scores,) = net({"x": _tensor(drawn(line))})
        questions.append(Question("what is written in a drawn line", line, _read(scores[0], characters)))
    return questions


def _ask_where(net):
    """Each of three lines on a page is one area, about where it was drawn."""
    page = np.full((*PAGE, 3), 255, np.uint8)
    tops = (20, 100, 180)
    for top, line in zip(tops, LINES, strict=True):
        page[top : top + HEIGHT, :WIDTH] = drawn(line)
    mean, deviation = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
    (chance,) = net({"x": _tensor(page, mean, deviation)})
    rows = (chance[0, 0] > 0.3).any(1)
    edges = np.flatnonzero(np.diff(np.concatenate([[0], rows.astype(int), [0]])))
    found = [(first, last) for first, last in zip(edges[::2], edges[1::2], strict=True) if last - first > 4]
    within = [top for top in tops if any(first >= top - 4 and last <= top + HEIGHT + 4 for first, last in found)]
    said = f"{len(found)} lines, {len(within)} of them where they were drawn"
    return [Question("where lines stand on a page", "3 lines, 3 of them where they were drawn", said)]


def _ask_which_way(net):
    questions = []
    for turned, label in ((False, "upright"), (True, "upside down")):
        image = drawn(LINES[0], (HEIGHT, 192), (4, 8), 22)
        (scores,) = net({"x": _tensor(image[::-1, ::-1] if turned else image)})
        got = ("upright", "upside down")[int(scores[0].argmax())]
        questions.append(Question(f"which way up a line that is {label} stands", label, got))
    return questions


def _file(name):
    return shipped("rapidocr", "models", f"{name}.onnx")


def models(_tree, _folder):
    def model(name, file, ask, shape):
        return Trained(name, "rapidocr", lambda: _file(file), ask, ("--input-shape", f"x:1,3,{shape}"))

    return [
        model("text-detection", "PP-OCRv6_det_small", _ask_where, f"{PAGE[0]},{PAGE[1]}"),
        model("text-direction", "ch_ppocr_mobile_v2.0_cls_mobile", _ask_which_way, f"{HEIGHT},192"),
        model("text-recognition", "PP-OCRv6_rec_small", _ask_what, f"{HEIGHT},{WIDTH}"),
    ]
