# SPDX-License-Identifier: Apache-2.0
#
# `make help` lists the targets. Each sets up what it needs first; set-up leaves alone what is up to date.

SHELL := /bin/bash
.SHELLFLAGS := -o pipefail -c

PYTHON ?=
JOBS ?=
export PYTHON JOBS
# What `make backends` installs; what the tests install first (and CUDA's compiler), and then demand together with what
# set-up brings: one that does not work fails the run.
BACKENDS ?= openvino,onnxruntime,openblas,mkl
TEST_BACKENDS ?= openvino,onnxruntime,openblas,mkl
DEMANDED := COLLAGE_REQUIRE_BACKENDS=dnnl,dnnl_tvm,$(TEST_BACKENDS)

COLLAGE := .venv/bin/collage

.PHONY: help setup build docs report backends peers demo test test-fast test-all test-native fuzz safety mutate sabotage wheel check bench bench-networks bench-without bench-operators bench-kernels bench-blocking bench-onednn bench-backends bench-memory bench-serve bench-region-call bench-threads bench-partition bench-drop-in bench-precision bench-quantised bench-solver bench-search bench-anytime bench-ablation bench-scale bench-models gpu-bundle gpu-check conformance conformance-open models trained clean distclean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 18

setup: ## .venv with TVM and oneDNN, the native parts, the command .venv/bin/collage
	@scripts/setup.sh

build: setup ## the native parts (set-up builds them)

docs: setup ## the site of the documents, build/docs-site/index.html: readable and searchable without a server
	@scripts/docs.sh

report: ## what draws the page of --report: cytoscape and elkjs, by npm (set-up fetches them where there is npm)
	@scripts/report.sh

backends: setup ## the libraries of optional backends: make backends BACKENDS=openvino,onnxruntime,mkl,openblas (or all)
	@scripts/backends.sh $(BACKENDS)

peers: setup ## PyTorch, in an environment of its own, for make bench (3 GB to fetch)
	@scripts/peers.sh

demo: setup ## compile U-Net for TVM, oneDNN and our own kernels, then run the result without TVM's compiler
	@mkdir -p build/demo
	$(COLLAGE) compile workload:unet --backends tvm,dnnl,native --search-time 30s -o build/demo/model.tar \
		--plan-out build/demo/plan.json
	$(COLLAGE) explain build/demo/plan.json
	$(COLLAGE) run build/demo/model.tar --repeat 20

test-fast: setup ## under a minute: Go without TVM, small graphs through TVM
	@scripts/test.sh fast

test: setup ## what every change must pass: Go (with the race detector), C++, Python
	@scripts/backends.sh $(TEST_BACKENDS),cuda
	@$(DEMANDED) scripts/test.sh

test-all: setup ## the long ones: whole networks, random programs, sanitizers, fuzzing, sabotage; ARGS=--list names the pieces
	@scripts/backends.sh $(TEST_BACKENDS),cuda
	@$(DEMANDED) .venv/bin/python scripts/test_all.py $(ARGS)

test-native: setup ## the C++ parts under AddressSanitizer, UndefinedBehaviorSanitizer and ThreadSanitizer
	@scripts/test_native.sh

fuzz: setup ## each fuzz target for a minute: Go's, then the C++ ones (SECONDS_EACH=600 for longer)
	@scripts/fuzz_go.sh
	@scripts/fuzz_native.sh

safety: setup ## the stress under sanitizers and the C++ fuzz targets; writes docs/results/safety.txt (25 minutes)
	@scripts/safety.sh

mutate: ## changes the optimiser's code in small ways and counts what its tests do not notice
	@scripts/mutate.sh

sabotage: setup ## ten deliberate faults, each of which must make the gate fail
	@scripts/sabotage.sh

wheel: setup ## dist/*.whl that pip installs on other machines
	@scripts/wheel.sh

check: setup ## format, vet, lint; fails where that leaves the tree dirty
	@scripts/check.sh

bench: backends ## the five networks beside TVM, ONNX Runtime, OpenVINO and PyTorch, where installed; writes docs/results/all.{txt,json,svg}
	@mkdir -p build/bench
	@$(COLLAGE) bench all --executables build/bench --json docs/results/all.json --svg docs/results/all.svg $(ARGS) | tee docs/results/all.txt

bench-operators: backends ## ResNeXt-50's convolutions and BERT's products on each backend; writes docs/results/{convs,matmuls}.{txt,json,svg}
	@for what in convs matmuls; do \
	  $(COLLAGE) bench $$what --json docs/results/$$what.json --svg docs/results/$$what.svg $(ARGS) | tee docs/results/$$what.txt; done

bench-kernels: backends ## each kernel of our own beside the backends and the machine's limit, as it is, capped to AVX2 and, where the processor has instructions for them, in bytes and bfloat16; writes docs/results/kernels*.{txt,json,svg}
	@$(COLLAGE) bench kernels --json docs/results/kernels.json --svg docs/results/kernels.svg $(ARGS) | tee docs/results/kernels.txt
	@COLLAGE_MAX_CPU_ISA=avx2 $(COLLAGE) bench kernels --target x86-64-v3 --json docs/results/kernels_avx2.json --svg docs/results/kernels_avx2.svg \
	  $(ARGS) | tee docs/results/kernels_avx2.txt
	@! grep -q avx512_vnni /proc/cpuinfo || $(COLLAGE) bench kernels --of native_int8 --json docs/results/kernels_int8.json \
	  --svg docs/results/kernels_int8.svg $(ARGS) | tee docs/results/kernels_int8.txt
	@! grep -q avx512_bf16 /proc/cpuinfo || $(COLLAGE) bench kernels --of native_bf16 --json docs/results/kernels_native_bf16.json \
	  --svg docs/results/kernels_native_bf16.svg $(ARGS) | tee docs/results/kernels_native_bf16.txt
	@! grep -q avx512_vnni /proc/cpuinfo || $(COLLAGE) bench kernels --of dnnl_int8 --json docs/results/kernels_dnnl_int8.json \
	  --svg docs/results/kernels_dnnl_int8.svg $(ARGS) | tee docs/results/kernels_dnnl_int8.txt

bench-blocking: setup ## the numbers by which kernels of our own cut their work, each at half and at twice; writes docs/results/blocking.txt
	@scripts/bench_blocking.sh $(ARGS) | tee docs/results/blocking.txt

bench-networks: backends ## twelve networks, batch 1 and 8, one thread and all, beside oneDNN alone, ONNX Runtime and OpenVINO; writes docs/results/networks_{b1,b8,t1}.{txt,json,svg}
	@scripts/bench_networks.sh $(ARGS)

bench-without: backends ## what make bench-networks kept, searched again without each kernel of our own; writes docs/results/without.{txt,json,svg}
	@ONLY=without scripts/bench_networks.sh $(ARGS)

bench-backends: backends ## the five networks on each backend alone and on its library directly; writes docs/results/backends.{txt,json,svg}
	@mkdir -p build/bench
	@$(COLLAGE) bench backends --executables build/bench --json docs/results/backends.json --svg docs/results/backends.svg $(ARGS) | tee docs/results/backends.txt

bench-threads: backends ## one thread pool beside separate ones, idle and with a neighbour; writes docs/results/threads.{txt,json}
	@.venv/bin/python scripts/bench_threads.py --json docs/results/threads.json $(ARGS) | tee docs/results/threads.txt

bench-region-call: backends ## what calling a region takes, backend by backend; writes docs/results/region_call.txt
	@.venv/bin/python scripts/bench_region_call.py $(ARGS) | tee docs/results/region_call.txt

bench-memory: setup ## what a model holds in memory, and eight copies of it; writes docs/results/memory.txt
	@.venv/bin/python scripts/bench_memory.py $(ARGS) | tee docs/results/memory.txt

gpu-bundle: setup ## what a machine with an NVIDIA card and without a package index needs, in build/gpu-bundle.tar.xz
	@scripts/gpu_bundle.sh

gpu-check: setup ## all of CUDA on this machine's NVIDIA card; ARGS=--dry-run on the emulated one of the tests
	@scripts/backends.sh cuda
	@.venv/bin/python scripts/gpu_check.py $(ARGS)

bench-devices: setup ## networks on an OpenCL device, with CLBlast and without; writes docs/results/devices.txt
	@scripts/backends.sh clblast
	@.venv/bin/python scripts/bench_devices.py $(ARGS) | tee docs/results/devices.txt

bench-dynamic: setup peers ## networks whose sizes vary, beside engines that find sizes when they run; writes docs/results/dynamic.*
	@PYTHONPATH=scripts .venv-peers/bin/python -m models --open
	@.venv/bin/python scripts/bench_dynamic.py --json docs/results/dynamic.json $(ARGS) | tee docs/results/dynamic.txt

bench-ragged: setup peers ## padded batches, of which tokens alone are computed, beside engines that compute padding; writes docs/results/ragged.*
	@.venv/bin/python scripts/bench_ragged.py --json docs/results/ragged.json $(ARGS) | tee docs/results/ragged.txt

bench-serve: setup ## collage serve under load beside MLServer with ONNX Runtime; writes docs/results/serve.{txt,json}
	@scripts/serve_peer.sh
	@.venv/bin/python scripts/bench_serve.py --json docs/results/serve.json $(ARGS) | tee docs/results/serve.txt

bench-partition: setup ## reading and annotating ResNet-50, beside TVM's PartitionGraph
	@.venv/bin/python scripts/bench_partition.py

bench-drop-in: setup ## what collage.partition gives beside each backend alone; writes docs/results/drop_in.txt
	@.venv/bin/python scripts/bench_drop_in.py $(ARGS) | tee docs/results/drop_in.txt

bench-precision: backends ## ten networks within limits of error, beside OpenVINO as it comes and PyTorch's autocast; writes docs/results/precision_*.{txt,json}
	@scripts/bench_precision.sh $(ARGS)

bench-quantised: backends ## networks that come quantised, beside the engines on the same files; writes docs/results/quantised.{txt,json}
	@scripts/bench_quantised.sh $(ARGS)

bench-solver: ## the solver on 10^2 to 10^5 operators, beside Dijkstra; writes docs/results/solver.{txt,json}
	@PATH="$$PATH:/usr/local/go/bin" go run ./scripts/benchsolver --out docs/results

bench-onednn: setup ## oneDNN 2.6 beside 3.2, primitive by primitive, on one thread and on two; writes docs/results/onednn{,_t2}.{txt,json}
	@.venv/bin/python scripts/bench_onednn.py --json docs/results/onednn.json $(ARGS) | tee docs/results/onednn.txt
	@.venv/bin/python scripts/bench_onednn.py --threads 2 --json docs/results/onednn_t2.json $(ARGS) | tee docs/results/onednn_t2.txt

bench-search: setup ## seconds of searching and latency of what is found, beside TVM's CollagePartition; writes docs/results/search.{txt,json}
	@.venv/bin/python scripts/bench_search.py --json docs/results/search.json $(ARGS) | tee docs/results/search.txt

bench-anytime: backends ## how fast the fastest executable so far is while eight networks are compiled; writes docs/results/anytime.{txt,json,svg}
	@scripts/bench_anytime.sh $(ARGS)

bench-ablation: backends ## what each part of the search is worth, on ten networks; writes docs/results/ablation.{txt,json,svg}
	@scripts/bench_ablation.sh $(ARGS)

bench-scale: setup ## how the time and memory of each step grow with operators and weights; writes docs/results/scale.{txt,json}
	@.venv/bin/python scripts/bench_scale.py --json docs/results/scale.json $(ARGS) | tee docs/results/scale.txt

models: backends peers ## write some fifty networks with PyTorch, read each and say which are right; writes docs/results/models.{txt,json}
	@PYTHONPATH=scripts .venv-peers/bin/python -m models --out build/models
	@.venv/bin/python scripts/read_models.py --json docs/results/models.json $(ARGS) | tee docs/results/models.txt

bench-models: backends peers ## those networks, two minutes of search each, beside ONNX Runtime, OpenVINO and torch.compile; writes docs/results/models_speed.{txt,json,svg}
	@PYTHONPATH=scripts .venv-peers/bin/python -m models --out build/models
	@scripts/bench_models.sh $(ARGS)

conformance: backends ## ONNX's own tests of its operators, for plain TVM and with each backend's share, beside ONNX Runtime; writes docs/results/onnx.{txt,json}
	@.venv/bin/python scripts/conformance.py --json docs/results/onnx.json $(ARGS) | tee docs/results/onnx.txt

conformance-open: backends ## the same tests with open dimensions, on TVM's virtual machine; writes docs/results/onnx_open.{txt,json}
	@.venv/bin/python scripts/conformance.py --engines tvm-batch,tvm-sizes --json docs/results/onnx_open.json $(ARGS) | tee docs/results/onnx_open.txt

trained: backends ## compile trained models that packages ship and ask them what they are for, in float32 and narrowly; writes docs/results/trained{,_auto}.{txt,json}
	@scripts/trained.sh
	@PYTHONPATH=python:scripts .venv-trained/bin/python -m trained --json docs/results/trained.json $(ARGS) | tee docs/results/trained.txt
	@PYTHONPATH=python:scripts .venv-trained/bin/python -m trained --precision auto --json docs/results/trained_auto.json $(ARGS) | tee docs/results/trained_auto.txt

clean: ## remove what was built; .venv stays
	rm -rf build dist python/collage/lib python/collage/bin

distclean: clean ## remove .venv, too
	rm -rf .venv .venv-serve .venv-trained
