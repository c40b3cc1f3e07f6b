# SPDX-License-Identifier: Apache-2.0
"""What is of CUDA alone (test_devices.py has what it shares with other devices): what is declared of the driver
is NVIDIA's; NVIDIA's compiler takes TVM's kernels; what the driver is asked to do for a model; bad input. No card is
needed: what runs does so on an emulated one (cuda_emulator).
"""

import json
import re
import subprocess
import threading
from importlib import metadata
from pathlib import Path

import device_operators
import documents
import emulated_card
import numpy as np
import placed
import pytest
import tvm
from conftest import run_python
from device_networks import by_costs, convolution, mixed, network, runs_like_tvm, steps, threads_agree, typed
from document_runner import Runner
from tvm import relay

BACKEND = "tvm_cuda"
INTERFACE = Path(__file__).parent.parent / "byoc" / "runtime" / "cuda_interface"
ARCHITECTURES = ["sm_80", "sm_90"]
ELF, EM_CUDA = b"\x7fELF", 190


@pytest.fixture(scope="module", autouse=True)
def card(collage_library):
    with emulated_card.present():
        yield
        placed.forget()


def packaged(package, ending):
    """The file of an installed package whose path ends so."""
    (file,) = [file for file in metadata.files(package) if str(file).endswith(ending)]
    return Path(file.locate())


HEADERS = {"12": "nvidia-cuda-runtime-cu12", "13": "nvidia-cuda-runtime"}


@pytest.mark.parametrize("version", HEADERS)
def test_what_is_declared_of_the_driver_is_nvidias(version, tmp_path):
    """Each function's type, each number, with NVIDIA's header of both versions."""
    ours = (INTERFACE / "cuda.h").read_text()
    functions = re.findall(r"F\((cu\w+),\s*(\(.*?\)),\s*\\?\s*\(", ours.replace("\\\n", " "), re.DOTALL)
    numbers = re.findall(r"\b(CU\w+) = (\d+)", ours)
    assert len(functions) > 30 and len(numbers) > 8
    lines = ["#include <cuda.h>", "#include <cstddef>", "#include <type_traits>"]
    for name, parameters in functions:
        lines += [f"#undef {name}", f'extern "C" CUresult {name}{parameters};']
        lines += [f"static_assert(std::is_same_v<decltype(&{name}), CUresult (*){parameters}>);"]
    lines += [f"static_assert({name} == {number});" for name, number in numbers]
    header = packaged(HEADERS[version], "include/cuda.h")
    (tmp_path / "check.cc").write_text("\n".join(lines))
    compiling = ["g++", "-std=c++17", "-fsyntax-only", f"-I{header.parent}", tmp_path / "check.cc"]
    done = subprocess.run(compiling, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    # The numbers of cudart's that are the driver's.
    theirs = packaged(HEADERS[version], "include/driver_types.h").read_text()
    attributes = re.findall(r"\b(cudaDevAttr\w+) = (\d+)", (INTERFACE / "cuda_runtime.h").read_text())
    assert len(attributes) > 10
    for name, number in attributes:
        assert re.search(rf"\b{name}\s*=\s*{number}\b", theirs), name


def nvrtc():
    """NVIDIA's compiler, as make test installs it."""
    return packaged("nvidia-cuda-nvrtc-cu12", "libnvrtc.so.12")


# Builds an expression that is given as TVM's JSON for a card, as a region; tells what is in the library.
BUILD = """
import json, os, sys
import tvm
import collage
from collage import device_library
collage.library.install("collage_cuda")
def cards(module):
    found = [module] if module.type_key == "cuda" else []
    return found + [one for imported in module.imported_modules for one in cards(imported)]

built = []
for path in sys.argv[2:]:
    with open(path) as file:
        module = tvm.ir.load_json(file.read())
    made = bytes(device_library.build(module["main"], f"cuda -arch={sys.argv[1]}"))
    kernels, _, library = made.partition(b"\\0")
    with open(path + ".so", "wb") as file:
        file.write(library)
    (code,) = cards(tvm.runtime.load_module(path + ".so"))
    code.save(path + ".cubin", "cubin")
    built.append(json.loads(kernels))
print(json.dumps(built))
"""


def compiled(architecture, modules, folder):
    """What NVIDIA's compiler makes of modules: the kernels, and the machine code."""
    paths = [folder / f"{index}.json" for index in range(len(modules))]
    for path, module in zip(paths, modules, strict=True):
        path.write_text(tvm.ir.save_json(module))
    real = {"COLLAGE_NVRTC_LIBRARY": nvrtc()}
    built = run_python(BUILD, architecture, *paths, timeout=800, **real)
    return built, [Path(f"{path}.cubin").read_bytes() for path in paths]


def check(code, architecture):
    assert code[:4] == ELF and int.from_bytes(code[18:20], "little") == EM_CUDA
    # The last byte of the flags, or the one before it, is the architecture's number.
    assert int(architecture[3:]) in code[48:52], code[48:52]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_nvidias_compiler_takes_a_network(architecture, tmp_path):
    (kernels,), (code,) = compiled(architecture, [network()], tmp_path)
    check(code, architecture)
    assert {"nn.conv2d", "nn.softmax"} <= {name for _, names in kernels for name in names}


@pytest.mark.long
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_nvidias_compiler_takes_each_operator(architecture, tmp_path):
    made = [typed(make()) for kind in device_operators.OPERATORS.values() for make in kind.values()]
    _, codes = compiled(architecture, made, tmp_path)
    for code in codes:
        check(code, architecture)


@pytest.mark.long
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_nvidias_compiler_takes_the_five_networks(architecture, tmp_path):
    from collage import transform, workloads

    made = []
    for name in ("bert_full", "dcgan", "nasneta", "resnet50_3d", "resnext50_32x4d"):
        module, params = workloads.build(name)
        module["main"] = relay.build_module.bind_params_by_name(module["main"], params)
        made.append(transform.Normalise()(module))
    _, codes = compiled(architecture, made, tmp_path)
    for code in codes:
        check(code, architecture)


def done_by(command, archive, folder, **told):
    """What the driver was asked to do while a model was run once: lines of the emulator's."""
    log = folder / "log"
    log.unlink(missing_ok=True)
    ran = command("run", archive, "--repeat", 1, environment=emulated_card.told(log=log, **told))
    assert ran.returncode == 0, ran.stderr
    return log.read_text().splitlines()


def test_what_the_driver_is_asked_to_do(command, tmp_path):
    """Weights are copied once, and in each call what the plan says; kernels are those of TVM's graph, in its order."""
    module = network()
    split, plan = mixed("cuda", module, ["nn.conv2d", "nn.relu"])
    copies = [region["copies"] for region in plan["regions"] if region["backend"] == BACKEND]
    archive = placed.export_to(tmp_path / "model.tar", split)
    kernels = [step for step in steps(split, tmp_path, *placed.values(module)) if step["what"] == "kernel"]
    lines = done_by(command, archive, tmp_path)
    launches = [line for line in lines if line.startswith("launch ")]
    calls = len(launches) // len(kernels)
    assert calls > 0 and len(launches) == calls * len(kernels)
    assert [line.split()[2] for line in launches] == [line.split()[2] for line in launches[: len(kernels)]] * calls
    back = [line for line in lines if line.startswith("copy card host")]
    assert len(back) == calls * sum(one["from_device"] for one in copies)
    assert sum(int(line.split()[-1]) for line in back) == calls * sum(one["from_bytes"] for one in copies)
    there = sum(int(line.split()[-1]) for line in lines if line.startswith("copy host card"))
    weights = 4 * (3 * 8 * 9 + 8 * 8 * 9)
    assert there == weights + calls * sum(one["to_bytes"] for one in copies)
    assert lines.count("load sm_90") == len(copies)
    # After a call's last copy back it waits for it: CUDA need not by itself.
    assert lines[lines.index(back[-1]) + 1 :].count("wait") > 0


def test_a_card_among_several(command, tmp_path):
    module = typed(relay.exp(relay.var("x", shape=(8, 8))))
    archive = placed.export_to(tmp_path / "model.tar", placed.place(module, BACKEND))
    used = emulated_card.told(count=2)
    told = json.loads(command("doctor", "--json", environment={**used, "COLLAGE_CUDA_DEVICE": "1"}).stdout)
    cards = [one for one in told["devices"] if one["kind"] == "cuda"]
    assert [(one["name"], one["used"]) for one in cards] == [("Emulated card 0", False), ("Emulated card 1", True)]
    for number in ("0", "1"):
        log = tmp_path / number
        environment = {**used, "COLLAGE_CUDA_DEVICE": number, **emulated_card.told(log=log)}
        done = command("run", archive, "--repeat", 1, environment=environment)
        assert done.returncode == 0, done.stderr
        assert {line.split()[1] for line in log.read_text().splitlines() if line.startswith("launch ")} == {number}
    done = command("run", archive, environment={**used, "COLLAGE_CUDA_DEVICE": "2"})
    assert done.returncode == 2
    assert "COLLAGE_CUDA_DEVICE=2 names no CUDA device: 2 are here, numbered from 0" in done.stderr, done.stderr


def test_doctor_names_the_card(command):
    report = json.loads(command("doctor", "--json").stdout)
    (card,) = [one for one in report["devices"] if one["kind"] == "cuda"]
    assert card["name"] == "Emulated card 0" and card["version"] == "compute capability 9.0"
    assert card["driver"] == "CUDA 12.9" and card["memory_bytes"] == 1 << 30 and card["backends"] == ["cublas", BACKEND]
    assert "Emulated card 0, compute capability 9.0, driver CUDA 12.9" in command("doctor").stdout


def test_several_threads_at_once(tmp_path):
    """Models of several threads on one card, each with values of its own."""
    module = network()
    threads_agree(module, placed.export_to(tmp_path / "model.tar", placed.place(module, BACKEND)), turns=4)


LACKING = {
    "no driver": (
        {"COLLAGE_CUDA_DRIVER": "/nowhere/libcuda.so.1"},
        "CUDA's driver cannot be opened where COLLAGE_CUDA_DRIVER says",
        "tvm_cuda cannot be used: COLLAGE_CUDA_DRIVER is /nowhere/libcuda.so.1, which is no file",
    ),
    "no card": (emulated_card.told(count=0), "knows no device on this machine", "knows no device on this machine"),
    "lost": (
        emulated_card.told(lost=__file__),
        "does not work here: CUDA_ERROR_DEVICE_UNAVAILABLE",
        "does not work here: CUDA_ERROR_DEVICE_UNAVAILABLE",
    ),
}


@pytest.mark.parametrize("what", LACKING)
def test_where_there_is_no_card(what, command, tmp_path):
    """A model says what it lacks before anything of it runs, and a compilation before anything is measured."""
    environment, of_model, of_compilation = LACKING[what]
    archive = placed.export_to(tmp_path / "model.tar", placed.place(network(), BACKEND))
    done = command("run", archive, environment=environment)
    assert done.returncode == 2 and of_model in done.stderr, done.stderr
    assert "this model needs CUDA 12.0" in done.stderr
    model = tmp_path / "network.json"
    model.write_text(tvm.ir.save_json(network()))
    arguments = ["compile", model, "-o", tmp_path / "out.tar", "--device", "cuda", "--db", tmp_path / "costs.jsonl"]
    done = command(*arguments, environment=environment)
    assert done.returncode == 2 and of_compilation in done.stderr, done.stderr
    assert not (tmp_path / "out.tar").exists()


# Runs a model, and once more when its card is lost; tells what that says, and ends as any program does.
LOSE = """
import json, pathlib, sys
import numpy as np
import tvm
import collage
executor = collage.load(sys.argv[1])
with np.load(sys.argv[2]) as arrays:
    executor.set_input(0, arrays["input"])
executor.run()
before = executor.get_output(0).numpy()
pathlib.Path(sys.argv[3]).touch()
try:
    executor.run()
    said = ""
except tvm.TVMError as error:
    said = str(error)
print(json.dumps({"before": before.tolist(), "said": said}))
"""


def test_a_card_that_is_lost_while_a_model_is_loaded(tmp_path):
    module = network()
    archive = placed.export_to(tmp_path / "model.tar", placed.place(module, BACKEND))
    (value,) = placed.values(module)
    np.savez(tmp_path / "input.npz", input=value)
    lost = tmp_path / "lost"
    told = run_python(LOSE, archive, tmp_path / "input.npz", lost, **emulated_card.told(lost=lost))
    placed.same([np.array(told["before"], "float32")], placed.expected(module, value))
    assert "CUDA_ERROR_DEVICE_UNAVAILABLE" in told["said"]


def test_no_compiler(command, tmp_path):
    """Without NVIDIA's compiler models run, and none is compiled."""
    archive = placed.export_to(tmp_path / "model.tar", placed.place(network(), BACKEND))
    lacking = {"COLLAGE_NVRTC_LIBRARY": "/nowhere/libnvrtc.so.12"}
    done = command("run", archive, "--repeat", 1, environment=lacking)
    assert done.returncode == 0, done.stderr
    model = tmp_path / "network.json"
    model.write_text(tvm.ir.save_json(network()))
    done = command("compile", model, "-o", tmp_path / "out.tar", "--device", "cuda", environment=lacking)
    assert done.returncode == 2
    assert "tvm_cuda cannot be used: COLLAGE_NVRTC_LIBRARY is" in done.stderr, done.stderr
    assert "make backends BACKENDS=cuda" in done.stderr


def test_a_model_for_another_card(command, tmp_path):
    """Code runs on cards of the same major architecture, of no lesser minor one."""
    archive = placed.export_to(tmp_path / "model.tar", placed.place(network(), BACKEND))
    for capability, runs in (("9.1", True), ("8.9", False), ("10.0", False)):
        done = command("run", archive, "--repeat", 1, environment=emulated_card.told(capability=capability))
        assert (done.returncode == 0) == runs, done.stderr
        if not runs:
            here = "sm_" + capability.replace(".", "")
            assert "was compiled for GPUs of the architecture sm_90, and Emulated card 0 is " + here in done.stderr
            assert f"COLLAGE_CUDA_ARCH={here}" in done.stderr


@pytest.mark.parametrize("named", ["90", "sm_9", "sm_90 -x", "compute_90"])
def test_an_architecture_that_is_none(named, command, tmp_path):
    model = tmp_path / "network.json"
    model.write_text(tvm.ir.save_json(network()))
    arguments = ["compile", model, "-o", tmp_path / "out.tar", "--device", "cuda"]
    done = command(*arguments, environment={"COLLAGE_CUDA_ARCH": named})
    assert done.returncode == 2 and "COLLAGE_CUDA_ARCH is" in done.stderr and "sm_90" in done.stderr, done.stderr


OUT_OF_MEMORY = "the device is out of memory: its 4 MiB do not hold it"


def test_a_model_that_the_card_has_no_room_for(command, tmp_path):
    module = typed(relay.exp(relay.var("x", shape=(1 << 20,))))
    archive = placed.export_to(tmp_path / "model.tar", placed.place(module, BACKEND))
    done = command("run", archive, environment=emulated_card.told(mib=4))
    assert done.returncode == 2 and OUT_OF_MEMORY in done.stderr, done.stderr
    assert "CUDA_ERROR_OUT_OF_MEMORY" in done.stderr
    assert command("run", archive, "--repeat", 1, environment=emulated_card.told(mib=9)).returncode == 0


# Builds what a plan places on a card where none is, and writes the model.
ELSEWHERE = """
import json, sys
import tvm
import collage
from collage import api, export, region
with open(sys.argv[1]) as file:
    module = tvm.ir.load_json(file.read())
with open(sys.argv[2]) as file:
    plan = file.read()
collage.library.install("collage_cuda")  # for who builds a module that was placed before
with collage.declared_costs(sys.argv[3]):
    split = collage.replay(module, plan, verify=False)
    plugins = [plugin for compiler in ("", *api.compilers(split)) for plugin in region.plugins_for(compiler)]
    export.write(export.build(split), sys.argv[4], list(dict.fromkeys(plugins)), 2)
print(json.dumps(True))
"""


def test_a_model_is_compiled_where_no_card_is(command, tmp_path):
    """By costs that a file declares, for an architecture that is named; it runs where that is."""
    module = network()
    copies = [{"bytes": 4096, "to_ms": 1e-3, "from_ms": 1e-3}]
    there = {BACKEND: {"gflops": 1e5, "gigabytes_per_second": 1e4}}
    (tmp_path / "costs.json").write_text(
        json.dumps({"version": 1, "devices": {"cuda": {"copies": copies}}, "backends": there})
    )
    (tmp_path / "network.json").write_text(tvm.ir.save_json(module))
    arguments = ["plan", "network.json", "--device", "cuda", "--backends", "tvm", "--costs", "costs.json"]
    arguments += ["--db", "costs.jsonl", "--plan-out", "plan.json", "-q"]
    without = {"COLLAGE_CUDA_DRIVER": "/nowhere/libcuda.so.1", "COLLAGE_CUDA_ARCH": "sm_80"}
    done = command(*arguments, cwd=tmp_path, environment=without)
    assert done.returncode == 0 and f"what {BACKEND} takes is declared" in done.stdout, done.stderr
    names = ["network.json", "plan.json", "costs.json", "model.tar"]
    run_python(ELSEWHERE, *(tmp_path / name for name in names), **without)
    done = command("run", tmp_path / "model.tar", environment=emulated_card.told(capability="9.0"))
    assert done.returncode == 2 and "architecture sm_80" in done.stderr, done.stderr
    lines = done_by(command, tmp_path / "model.tar", tmp_path, capability="8.6")
    assert "load sm_80" in lines
    # Nobody can measure there.
    done = command("compile", "network.json", "-o", "out.tar", "--device", "cuda", cwd=tmp_path, environment=without)
    assert done.returncode == 2 and "CUDA's driver cannot be opened" in done.stderr, done.stderr


def test_a_package_of_a_model_on_a_card(command, tmp_path):
    """It has the model and the plug-in; the driver is the machine's."""
    archive = placed.export_to(tmp_path / "model.tar", placed.place(network(), BACKEND))
    done = command("package", archive, "-o", tmp_path / "package")
    assert done.returncode == 0, done.stderr
    manifest = json.loads((tmp_path / "package" / "manifest.json").read_text())
    assert "libcollage_cuda.so" in manifest["plugins"] and emulated_card.FILE.name in manifest["system"]
    packed = [path.name for path in (tmp_path / "package").rglob("*.so*")]
    assert "libcollage_cuda.so" in packed
    assert not [name for name in packed if "nvidia" in name or "nvrtc" in name or "kernels" in name]
    done = command("run", tmp_path / "package", "--repeat", 1)
    assert done.returncode == 0, done.stderr


@pytest.mark.long
def test_the_document(tmp_path):
    """The commands of docs/devices.md, as they stand there."""
    (block,) = [one for one in documents.read("docs/devices.md").blocks if one.run_by == "tests/test_cuda.py"]
    assert "wrote model.tar" in Runner(tmp_path).run(block)


@pytest.mark.long
def test_a_card_that_disappears_while_it_is_searched(command, tmp_path):
    """What needs it is left out and said, what is written is right, and is tried again when the card is back."""
    model, lost, store = tmp_path / "network.json", tmp_path / "lost", tmp_path / "costs.jsonl"
    module = network()
    model.write_text(tvm.ir.save_json(module))
    ended = threading.Event()

    def lose():
        # The first lines are what copies take, before any network is built.
        while not ended.wait(0.02):
            if store.exists() and store.read_text().count("\n") >= 8:
                lost.touch()
                return

    loser = threading.Thread(target=lose)
    loser.start()
    arguments = ["compile", model, "-o", tmp_path / "model.tar", "--device", "cuda", "--backends", "tvm,dnnl"]
    arguments += ["--db", store, "--search-time", "40s", "--repeat", 5, "--plan-out", tmp_path / "plan.json"]
    done = command(*arguments, environment=emulated_card.told(lost=lost))
    ended.set()
    loser.join()
    assert done.returncode == 0, done.stderr
    assert lost.exists() and "tvm_cuda alone was left out" in done.stderr, done.stderr
    assert "CUDA_ERROR_DEVICE_UNAVAILABLE" in done.stderr
    inputs = placed.values(module, seed=5)
    placed.same(placed.run(placed.load(tmp_path / "model.tar"), *inputs), placed.expected(module, *inputs), rtol=1e-4)
    lost.unlink()
    done = command(*arguments, environment=emulated_card.told(lost=lost))
    assert done.returncode == 0 and "left out" not in done.stderr, done.stderr


def test_two_kinds_of_device_in_one_model(tmp_path):
    """A card and an OpenCL device, each with what is pinned to it, and the processor."""
    import collage
    import opencl_driver

    opencl_driver.required()
    module = network()
    pins = ["nn.conv2d=tvm_cuda", "nn.relu=tvm_cuda", "nn.max_pool2d=tvm_opencl", "nn.softmax=tvm"]
    told = collage.transform.configuration(["tvm"], devices=["cuda", "opencl"], threads=placed.THREADS, pin=pins)
    split, plan = tvm.get_global_func("collage.partition")(module, told, lambda key: 1.0)
    plan = json.loads(str(plan))
    assert {region["backend"] for region in plan["regions"]} == {"tvm", BACKEND, "tvm_opencl"}
    runs_like_tvm(module, split, tmp_path)


def test_numbers_that_are_none_or_infinite(tmp_path):
    """TVM's kernels name NVIDIA's header for them."""
    x = relay.var("x", shape=(4,))
    whole = relay.Tuple([x + relay.const(np.float32(value)) for value in (np.inf, -np.inf, np.nan)])
    module = typed(relay.Function([x], whole))
    split = placed.place(module, BACKEND)
    assert placed.regions(split)
    (value,) = placed.values(module)
    got = placed.run(placed.load(placed.export_to(tmp_path / "model.tar", split)), value)
    for one, number in zip(got, (np.inf, -np.inf, np.nan), strict=True):
        np.testing.assert_array_equal(one, np.full(4, number, "float32"))


def test_float64(tmp_path):
    module = typed(relay.tanh(convolution(relay.var("x", shape=(1, 3, 8, 8)), 3, 4)))
    wide = typed(relay.sqrt(relay.abs(relay.cast(module["main"].body, "float64"))))
    split, plan = by_costs("cuda", wide, lambda key: 0.01 if key["backend"] == BACKEND else 1.0)
    assert {region["backend"] for region in plan["regions"]} == {BACKEND}
    runs_like_tvm(wide, split, tmp_path, rtol=1e-6)
