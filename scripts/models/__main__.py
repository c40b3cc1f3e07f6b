# SPDX-License-Identifier: Apache-2.0
"""Write the networks as files: python -m models [--only NAME,...] [--exporter new|old|pt2] [--open] [--out FOLDER].
    python -m models --ragged NAME_BATCHxLENGTH,...

"new" is torch.onnx.export as it is by default (dynamo=True), "old" the one by TorchScript, "pt2" torch.export.save. A
file NAME.EXPORTER.onnx, or NAME.pt2, that is there stays. What an exporter cannot write is told, and is no error of
ours; with none written the exit code is 1. With --open those networks are written that table.OPEN has, as
NAME.open.onnx by "new", with the dimensions open that stand there; with --ragged encoders on padded batches of those
sizes, as NAME.ragged.onnx (ragged.NETWORKS).
"""

import argparse
import contextlib
import logging
import os
import time
import warnings
from pathlib import Path

EXPORTERS = ("new", "old", "pt2")


def arguments():
    parser = argparse.ArgumentParser(prog="python -m models", description=__doc__)
    parser.add_argument("--only", default="", help="these, with commas between them")
    parser.add_argument("--exporter", choices=EXPORTERS, help="this one instead of all")
    parser.add_argument("--open", action="store_true", help="networks with open dimensions")
    parser.add_argument("--ragged", default="", help="encoders on padded batches, as layer_8x64")
    parser.add_argument("--out", type=Path, default=Path("build/models"), help="the folder")
    return parser.parse_args()


@contextlib.contextmanager
def silence():
    """What exporters print, from C++ too, goes nowhere: where one fails, that is the whole network."""
    kept = os.dup(1), os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        for stream in (1, 2):
            os.dup2(nowhere, stream)
        yield
    finally:
        for stream, was in zip((1, 2), kept, strict=True):
            os.dup2(was, stream)
            os.close(was)
        os.close(nowhere)


def write(make, exporter, path, dimensions=None):
    """Write one network; ``dimensions`` are the open ones of its inputs, as torch.onnx.export has them."""
    import torch

    torch.manual_seed(0)
    network, inputs = make()
    network.eval()
    for weights in network.parameters():
        if weights.dim() > 1 and not weights.any():
            torch.nn.init.normal_(weights, std=0.02)  # a head that was made to say nothing (torchvision's ViT)
    # What the old exporter cannot write.
    torch.backends.mha.set_fastpath_enabled(False)
    partial = path.with_name("part." + path.name)
    with torch.no_grad(), silence():
        if exporter == "new":
            torch.onnx.export(network, inputs, str(partial), dynamo=True, verbose=False, external_data=False,
                              dynamic_shapes=dimensions)  # fmt: skip
        elif exporter == "pt2":
            torch.export.save(torch.export.export(network, inputs), str(partial))
        else:
            torch.onnx.export(network, inputs, str(partial), dynamo=False)
    os.replace(partial, path)


def write_open(networks, given):
    """The networks with open dimensions; what is there stays."""
    given.out.mkdir(parents=True, exist_ok=True)
    for name, (make, dimensions) in networks.items():
        path = given.out / f"{name}.open.onnx"
        if (given.only and name not in given.only.split(",")) or path.exists():
            continue
        write(make, "new", path, dimensions())
        print(f"models: {name:20} open {path.stat().st_size / 1e6:7.1f} MB", flush=True)
    return 0


def write_ragged(given):
    """Encoders on padded batches, by their names; what is there stays."""
    from . import ragged

    given.out.mkdir(parents=True, exist_ok=True)
    for name in given.ragged.split(","):
        path = given.out / f"{name}.ragged.onnx"
        if not path.exists():
            write(lambda name=name: ragged.named(name), "new", path)
            print(f"models: {name:20} {path.stat().st_size / 1e6:7.1f} MB", flush=True)
    return 0


def main():
    given = arguments()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    from .table import NETWORKS, OPEN

    if given.ragged:
        return write_ragged(given)
    if given.open:
        return write_open(OPEN, given)
    names = given.only.split(",") if given.only else list(NETWORKS)
    for name in names:
        if name not in NETWORKS:
            raise SystemExit(f"models: error: there is no network {name}; there are: {', '.join(NETWORKS)}")
    given.out.mkdir(parents=True, exist_ok=True)
    written = 0
    for name in names:
        for exporter in [given.exporter] if given.exporter else EXPORTERS:
            file = f"{name}.pt2" if exporter == "pt2" else f"{name}.{exporter}.onnx"
            path, began = given.out / file, time.monotonic()
            if path.exists():
                written += 1
                continue
            try:
                write(NETWORKS[name], exporter, path)
            except Exception as error:
                why = (str(error).strip().splitlines() or [""])[0]
                print(f"models: {name:20} {exporter}  cannot be exported: {type(error).__name__}: {why}", flush=True)
                continue
            written += 1
            size, took = path.stat().st_size / 1e6, time.monotonic() - began
            print(f"models: {name:20} {exporter}  {size:7.1f} MB  {took:5.1f} s", flush=True)
    return 0 if written else 1


if __name__ == "__main__":
    raise SystemExit(main())
