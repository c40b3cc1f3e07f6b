# SPDX-License-Identifier: Apache-2.0
"""Silero VAD: whether somebody speaks, 32 ms by 32 ms; spoken by eSpeak NG."""

import ctypes

import numpy as np

from .task import Question, Trained, shipped

RATE = 16000
STEP, BEFORE = 512, 64  # samples of a step, and those of the step before that it sees, too
STEPS = 48
SENTENCE = "The quick brown fox jumps over the lazy dog, and somebody speaks all the time."


def spoken(text):
    """What eSpeak NG says, as float32 at RATE."""
    library = ctypes.CDLL(str(shipped("espeakng_loader", "libespeak-ng.so")))
    folder = shipped("espeakng_loader", "espeak-ng-data", "phondata").parent.parent
    said = []
    kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.c_void_p)

    @kind
    def heard(samples, count, _events):
        if samples and count > 0:
            said.append(np.ctypeslib.as_array(samples, (count,)).copy())
        return 0

    synchronous, text_is_utf8 = 2, 1
    rate = library.espeak_Initialize(synchronous, 0, str(folder).encode(), 0)
    if rate <= 0:
        raise OSError("eSpeak NG does not start")
    library.espeak_SetSynthCallback(heard)
    library.espeak_SetVoiceByName(b"en")
    content = text.encode()
    library.espeak_Synth(content, len(content) + 1, 0, 0, 0, text_is_utf8, None, None)
    library.espeak_Synchronize()
    wave = np.concatenate(said).astype(np.float32) / 32768
    at = np.arange(0, len(wave) - 1, rate / RATE)
    return np.interp(at, np.arange(len(wave)), wave).astype(np.float32)


def _sounds():
    """{what it is: (samples, whether somebody speaks)}."""
    rng = np.random.default_rng(3)
    length = STEP * STEPS
    time = np.arange(length) / RATE
    speech = spoken(SENTENCE)[RATE // 10 :][:length]
    return {
        "a spoken sentence": (speech, "speech"),
        "silence": (np.zeros(length, np.float32), "no speech"),
        "noise": (0.05 * rng.standard_normal(length).astype(np.float32), "no speech"),
        "a steady tone": ((0.2 * np.sin(2 * np.pi * 440 * time)).astype(np.float32), "no speech"),
    }


def _steps(samples):
    """(steps, BEFORE + STEP): each step behind the end of the one before."""
    padded = np.concatenate([np.zeros(BEFORE, np.float32), samples])
    return np.stack([padded[at : at + BEFORE + STEP] for at in range(0, len(samples), STEP)])


def _judged(what, chances, expected):
    share = float(np.mean(np.asarray(chances) > 0.5))
    return Question(f"whether there is speech in {what}", expected, "speech" if share > 0.5 else "no speech")


def _ask_step_by_step(net):
    questions = []
    for what, (samples, expected) in _sounds().items():
        state, chances = np.zeros((2, 1, 128), np.float32), []
        for step in _steps(samples):
            chance, state = net({"input": step[None], "state": state})
            chances.append(float(chance.ravel()[0]))
        questions.append(_judged(what, chances, expected))
    return questions


def _ask_at_once(net):
    nothing = np.zeros((1, 1, 128), np.float32)
    return [
        _judged(what, net({"input": _steps(samples), "h": nothing, "c": nothing})[0], expected)
        for what, (samples, expected) in _sounds().items()
    ]


def _file(name):
    return lambda: shipped("silero_vad", "data", f"{name}.onnx")


def models(_tree, _folder):
    shapes = ("--input-shape", f"input:1,{BEFORE + STEP}", "--input-shape", "state:2,1,128")
    return [
        Trained("speech-step", "silero-vad", _file("silero_vad_openvino_16k"), _ask_step_by_step),
        Trained(
            "speech-sequence",
            "silero-vad",
            _file("silero_vad_16k_sequence"),
            _ask_at_once,
            ("--input-shape", f"input:{STEPS},{BEFORE + STEP}"),
        ),
        # The one that both rates are in, behind an If.
        Trained(
            "speech-both-rates",
            "silero-vad",
            _file("silero_vad"),
            _ask_step_by_step,
            (*shapes, "--input-value", f"sr:{RATE}"),
        ),
    ]
