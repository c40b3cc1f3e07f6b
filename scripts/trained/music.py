# SPDX-License-Identifier: Apache-2.0
"""Basic Pitch: which notes sound."""

import numpy as np

from .task import Question, Trained, shipped

RATE, LENGTH = 22050, 43844
LOWEST = 21  # the piano's lowest key, as MIDI counts them
INPUT = "serving_default_input_2:0"
CHORDS = {"an A": (69,), "a major chord": (60, 64, 67), "two notes": (57, 74)}
NAMES = ("C", "C#", "D", "D#", "E", "F", "F#", "G", "G#", "A", "A#", "B")


def _called(notes):
    return " ".join(f"{NAMES[note % 12]}{note // 12 - 1}" for note in notes) or "none"


def _played(notes):
    """Notes of six partials each that fade, as float32."""
    time = np.arange(LENGTH) / RATE
    wave = np.zeros(LENGTH)
    for note in notes:
        pitch = 440 * 2 ** ((note - 69) / 12)
        for partial in range(1, 7):
            wave += np.sin(2 * np.pi * pitch * partial * time) / partial**1.5 * np.exp(-1.5 * time)
    return (0.3 * wave / max(np.abs(wave).max(), 1e-9)).astype(np.float32).reshape(1, LENGTH, 1)


def _ask(net):
    questions = []
    for what, notes in {**CHORDS, "silence": ()}.items():
        _, sounding, _ = net({INPUT: _played(notes)})  # (1, 172 moments, 88 keys)
        heard = np.flatnonzero((sounding[0] > 0.5).mean(0) > 0.3) + LOWEST
        questions.append(Question(f"which notes sound in {what}", _called(notes), _called(heard.tolist())))
    return questions


def _file(name):
    return lambda: shipped("basic_pitch", "saved_models", "icassp_2022", name)


def models(_tree, _folder):
    return [
        Trained("notes-onnx", "basic-pitch", _file("nmp.onnx"), _ask, ("--input-shape", f"{INPUT}:1,{LENGTH},1")),
        Trained("notes-tflite", "basic-pitch", _file("nmp.tflite"), _ask),
    ]
