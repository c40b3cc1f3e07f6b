// SPDX-License-Identifier: Apache-2.0
//
// Whole regions of oneDNN's and our own kernels: the programs of the code generator's tests
// (byoc/dnnl/testdata) and the seeds of the fuzzer (fuzz/corpus/dnnl_compile), of each kernel at least one,
// with constants that are drawn here, on several numbers of threads, by several callers, and while other
// models are being loaded.
//
// ctest: threads engine
#include <dmlc/memory_io.h>
#include <gtest/gtest.h>
#include <tvm/runtime/container/array.h>
#include <tvm/runtime/module.h>
#include <tvm/runtime/ndarray.h>
#include <tvm/runtime/registry.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "arena.h"
#include "dnnl_check_program.h"
#include "dnnl_layout.h"
#include "dnnl_program.h"
#include "region_module.h"
#include "sample.h"

namespace collage {
namespace {

using tvm::runtime::Array;
using tvm::runtime::Module;
using tvm::runtime::NDArray;
using tvm::runtime::PackedFunc;
using tvm::runtime::Registry;

const PackedFunc& Packed(const std::string& name) {
  const PackedFunc* function = Registry::Get(name);
  if (function == nullptr) throw std::runtime_error("there is no packed function " + name);
  return *function;
}

// Truths, bytes, or numbers of float32 or bfloat16 up to the largest; those of one axis are above zero, since
// some of them are variances.
NDArray Drawn(const onednn::ValueType& type, unsigned seed, float largest) {
  const DLDataType dtype = onednn::ElementType(type);
  NDArray tensor = NDArray::Empty({type.dims.begin(), type.dims.end()}, dtype, {kDLCPU, 0});
  const int64_t count = onednn::Elements(type.dims);
  if (type.truth) {
    std::vector<char> truths(count);
    for (int64_t i = 0; i < count; ++i) truths[i] = static_cast<char>((i + seed) % 3 != 0);
    tensor.CopyFromBytes(truths.data(), truths.size());
    return tensor;
  }
  std::vector<float> numbers = Sample(count, seed);
  if (dtype.code == kDLInt && dtype.bits == 8) {
    std::vector<int8_t> bytes(count);
    for (int64_t i = 0; i < count; ++i) bytes[i] = static_cast<int8_t>(std::lround(numbers[i] * 127));
    tensor.CopyFromBytes(bytes.data(), bytes.size());
    return tensor;
  }
  for (float& number : numbers) number = largest * (type.dims.size() == 1 ? std::abs(number) : number);
  if (dtype.code == kDLBfloat && dtype.bits == 16) {
    std::vector<uint16_t> halves(count);
    for (int64_t i = 0; i < count; ++i) {
      uint32_t bits = 0;
      std::memcpy(&bits, &numbers[i], sizeof(bits));
      halves[i] = static_cast<uint16_t>(bits >> 16);
    }
    tensor.CopyFromBytes(halves.data(), halves.size() * sizeof(uint16_t));
    return tensor;
  }
  if (dtype.code != kDLFloat || dtype.bits != 32) {
    throw std::runtime_error("nothing is drawn for " + tvm::runtime::DLDataType2String(dtype));
  }
  tensor.CopyFromBytes(numbers.data(), numbers.size() * sizeof(float));
  return tensor;
}

// A region, its arguments and what it gives.
struct Region {
  std::string name, text;
  Array<NDArray> constants;
  std::vector<NDArray> inputs;
  std::vector<std::vector<int64_t>> outputs;
  std::vector<std::vector<float>> want;
};

// Types of arguments as modules are told them.
std::string TypeLine(const std::vector<int64_t>& dims, DLDataType dtype) {
  std::string line = tvm::runtime::DLDataType2String(dtype);
  for (const int64_t dim : dims) line += " " + std::to_string(dim);
  return line + "\n";
}

Module Make(const Region& region) {
  std::string inputs, outputs;
  for (const NDArray& input : region.inputs)
    inputs += TypeLine({input->shape, input->shape + input->ndim}, input->dtype);
  for (const auto& dims : region.outputs) outputs += TypeLine(dims, {kDLFloat, 32, 1});
  return Packed("collage.runtime.dnnlModuleCreate")("region", region.text, region.constants, inputs, outputs);
}

std::vector<std::vector<float>> RunRegion(const PackedFunc& function, const Region& region) {
  std::vector<NDArray> tensors = region.inputs;
  for (const auto& dims : region.outputs)
    tensors.push_back(NDArray::Empty(dims, {kDLFloat, 32, 1}, {kDLCPU, 0}));
  std::vector<TVMValue> values(tensors.size());
  std::vector<int> codes(tensors.size());
  tvm::runtime::TVMArgsSetter setter(values.data(), codes.data());
  for (size_t i = 0; i < tensors.size(); ++i) setter(i, tensors[i]);
  tvm::runtime::TVMRetValue result;
  function.CallPacked(tvm::runtime::TVMArgs(values.data(), codes.data(), static_cast<int>(tensors.size())),
                      &result);
  std::vector<std::vector<float>> results;
  for (size_t i = region.inputs.size(); i < tensors.size(); ++i) {
    int64_t count = 1;
    for (const int64_t dim : tensors[i].Shape()) count *= dim;
    results.emplace_back(count);
    tensors[i].CopyToBytes(results.back().data(), count * sizeof(float));
  }
  return results;
}

void ExpectSame(const std::vector<std::vector<float>>& got, const Region& region, const std::string& when) {
  for (size_t i = 0; i < got.size(); ++i) {
    ExpectClose(got[i], std::vector<double>(region.want[i].begin(), region.want[i].end()), 1e-3,
                region.name + when);
  }
}

// A program with arguments and constants.
Region RegionOf(const std::filesystem::path& path) {
  Region region;
  region.name = path.stem().string();
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  region.text = text.str();
  const onednn::Program program = onednn::ParseProgram(region.text);
  unsigned seed = 1;
  for (const int id : program.constants) region.constants.push_back(Drawn(program.values[id], seed++, 0.25F));
  for (const int id : program.inputs) region.inputs.push_back(Drawn(program.values[id], seed++, 1));
  for (const int id : program.outputs) region.outputs.push_back(program.values[id].dims);
  return region;
}

// Those of both folders, which have files in common, with what they give on one thread.
const std::vector<Region>& Regions() {
  static const auto* const regions = [] {
    std::map<std::string, std::filesystem::path> files;
    for (const char* folder : {COLLAGE_CORPUS "/dnnl_compile", COLLAGE_DNNL_TESTDATA}) {
      for (const auto& entry : std::filesystem::directory_iterator(folder)) {
        files[entry.path().filename().string()] = entry.path();
      }
    }
    auto* all = new std::vector<Region>;
    SetNumThreads(1);
    for (const auto& [name, path] : files) {
      Region region = RegionOf(path);
      Module module = Make(region);
      region.want = RunRegion(module.GetFunction("region"), region);
      all->push_back(std::move(region));
    }
    return all;
  }();
  return *regions;
}

TEST(Engine, ThereIsAProgramForEachKernel) {
  std::string texts;
  for (const Region& region : Regions()) {
    texts += region.text;
    bool any = false;
    for (const auto& output : region.want) {
      for (const float value : output) {
        EXPECT_TRUE(std::isfinite(value)) << region.name;
        any = any || value != 0;
      }
    }
    EXPECT_TRUE(any) << region.name << " gives nothing but zeros";
  }
  for (const char* kernel : {"attention", "bytes", "expansion", "grid", "narrow", "norm", "onednn_bytes",
                             "pairs", "product", "strips", "upsampled", "winograd"}) {
    EXPECT_NE(texts.find("\"kernel\": \"" + std::string(kernel) + "\""), texts.npos) << kernel;
  }
  EXPECT_NE(texts.find("\"bf16\": true"), texts.npos);
}

TEST(Engine, TheSameOnEachNumberOfThreads) {
  for (const Region& region : Regions()) {
    Module module = Make(region);
    const PackedFunc function = module.GetFunction("region");
    for (const int threads : {4, 1, 2, 7}) {
      SetNumThreads(threads);
      for (int round = 0; round < 3; ++round) {
        ExpectSame(RunRegion(function, region), region, " on " + std::to_string(threads));
      }
    }
  }
}

// What asks for another number of threads pays for it: nothing is compiled anew in a run. So a weight that is
// packed may be spoilt before the next one.
TEST(Engine, IsCompiledAnewWhenAnotherNumberOfThreadsIsAskedFor) {
  SetNumThreads(1);
  Region region = RegionOf(std::filesystem::path(COLLAGE_DNNL_TESTDATA) / "winograd.json");
  Module module = Make(region);
  const PackedFunc function = module.GetFunction("region");
  region.want = RunRegion(function, region);
  Packed("collage.runtime.SetNumThreads")(3);
  for (const NDArray& constant : region.constants) {
    if (constant->ndim == 4)
      std::memset(constant->data, 0, tvm::runtime::GetDataSize(*constant.operator->()));
  }
  ExpectSame(RunRegion(function, region), region, " on 3");
  SetNumThreads(2);
  const auto spoilt = RunRegion(function, region);
  EXPECT_NE(spoilt, region.want) << "the weight is read where it is, so this test shows nothing";
}

// A region and its model's number of threads as an exported library has them: saved, one behind the other.
class Model {
 public:
  Model(const Region& region, int threads) {
    dmlc::MemoryStringStream saved(&bytes_);
    Make(region)->SaveToBinary(&saved);
    Module number = Packed("collage.runtime.ThreadsModuleCreate")(threads);
    number->SaveToBinary(&saved);
    Load("dnnl");
  }
  Model(const std::string& engine, std::string bytes) : bytes_(std::move(bytes)) { Load(engine); }

  const PackedFunc& function() const { return function_; }

 private:
  void Load(const std::string& engine) {
    dmlc::MemoryFixedSizeStream stream(bytes_.data(), bytes_.size());
    modules_.push_back(Packed("runtime.module.loadbinary_collage_" + engine)(static_cast<void*>(&stream)));
    modules_.push_back(Packed("runtime.module.loadbinary_collage_threads")(static_cast<void*>(&stream)));
    function_ = modules_[0].GetFunction("region");
  }

  std::string bytes_;
  std::vector<Module> modules_;
  PackedFunc function_;
};

// Says on how many threads it runs.
class Probe final : public RegionEngine {
 public:
  void Run(const std::vector<const DLTensor*>&, const std::vector<DLTensor*>& outputs) override {
    *static_cast<float*>(TensorData(outputs[0])) = static_cast<float>(collage_num_threads());
  }
};

TEST(Model, KeepsItsThreadsWhateverElseIsLoaded) {
  RegisterRegionEngine("probe", [](const RegionProgram&) -> std::unique_ptr<RegionEngine> {
    return std::make_unique<Probe>();
  });
  const auto make = [](int threads) {
    std::string bytes;
    dmlc::MemoryStringStream saved(&bytes);
    Module region =
        Packed("collage.runtime.probeModuleCreate")("region", "", Array<NDArray>(), "", "float32 1\n");
    region->SaveToBinary(&saved);
    Module number = Packed("collage.runtime.ThreadsModuleCreate")(threads);
    number->SaveToBinary(&saved);
    return std::make_unique<Model>("probe", bytes);
  };
  Region probe;
  probe.outputs = {{1}};
  const auto one = make(1), four = make(4), two = make(2);
  EXPECT_EQ(RunRegion(one->function(), probe)[0][0], 1);
  EXPECT_EQ(RunRegion(four->function(), probe)[0][0], 4);
  EXPECT_EQ(RunRegion(two->function(), probe)[0][0], 2);
  SetNumThreads(3);
  EXPECT_EQ(RunRegion(one->function(), probe)[0][0], 3);
  EXPECT_EQ(RunRegion(four->function(), probe)[0][0], 3);
  EXPECT_EQ(RunRegion(make(5)->function(), probe)[0][0], 5);
}

// Six callers on models of 1, 2 and 4 threads, while a seventh loads others and runs them, and an eighth
// changes the number of threads of all.
void Stress(bool change) {
  (void)Regions();
  std::atomic<bool> stop{false};
  std::atomic<int> runs{0};
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 6; ++caller) {
    callers.emplace_back([&, caller] {
      constexpr int kThreads[] = {1, 2, 4};
      std::vector<std::unique_ptr<Model>> models;
      for (const Region& region : Regions())
        models.push_back(std::make_unique<Model>(region, kThreads[caller % 3]));
      for (int round = 0; round < COLLAGE_STRESS_ROUNDS; ++round) {
        for (size_t i = 0; i < models.size(); ++i) {
          ExpectSame(RunRegion(models[i]->function(), Regions()[i]), Regions()[i], " under stress");
          ++runs;
        }
      }
    });
  }
  std::thread loader([&] {
    for (int round = 0; !stop; ++round) {
      const Region& region = Regions()[round % Regions().size()];
      const Model model(region, 1 + round % 4);
      ExpectSame(RunRegion(model.function(), region), region, ", just loaded");
    }
  });
  std::thread changer([&] {
    for (int round = 0; change && !stop; ++round) {
      Packed("collage.runtime.SetNumThreads")(1 + round % 3);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  });
  for (std::thread& caller : callers) caller.join();
  stop = true;
  loader.join();
  changer.join();
  EXPECT_EQ(runs, 6 * COLLAGE_STRESS_ROUNDS * static_cast<int>(Regions().size()));
}

TEST(Stress, ModelsOfSeveralNumbersOfThreads) { Stress(false); }
TEST(Stress, WhileTheNumberOfThreadsChanges) { Stress(true); }

// Eight callers load, run and unload models of 1, 2 and 4 threads: each its own, and those of a shelf from
// which all take and onto which all put, so that a model goes while others run it. For
// COLLAGE_STRESS_SECONDS, else a few rounds each.
TEST(Stress, EightCallersLoadRunAndUnload) {
  (void)Regions();
  const char* const seconds = std::getenv("COLLAGE_STRESS_SECONDS");
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds ? std::atoi(seconds) : 0);
  constexpr size_t kShelf = 3;
  std::mutex mutex;
  std::vector<std::pair<size_t, std::shared_ptr<Model>>> shelf(kShelf);
  std::atomic<int> loads{0}, runs{0};
  const auto call = [&](unsigned caller) {
    std::minstd_rand random(caller + 1);
    const auto any = [&](size_t count) { return static_cast<size_t>(random()) % count; };
    for (int round = 0; round < COLLAGE_STRESS_ROUNDS || std::chrono::steady_clock::now() < end; ++round) {
      constexpr int kThreads[] = {1, 2, 4};
      size_t which = any(Regions().size());
      auto model = std::make_shared<Model>(Regions()[which], kThreads[any(3)]);
      ++loads;
      for (size_t i = any(3); i < 3; ++i, ++runs) {
        ExpectSame(RunRegion(model->function(), Regions()[which]), Regions()[which], ", a caller's own");
      }
      {
        const std::lock_guard<std::mutex> lock(mutex);
        shelf[any(kShelf)] = {which, model};
        std::tie(which, model) = shelf[any(kShelf)];
      }
      if (model == nullptr) continue;
      ExpectSame(RunRegion(model->function(), Regions()[which]), Regions()[which], ", off the shelf");
      ++runs;
    }
  };
  std::vector<std::thread> callers;
  for (unsigned caller = 0; caller < 8; ++caller) callers.emplace_back(call, caller);
  for (std::thread& caller : callers) caller.join();
  EXPECT_GE(loads, 8 * COLLAGE_STRESS_ROUNDS);
  EXPECT_GE(runs, loads);
  std::printf("stress: %s s, %zu regions, 8 callers, models of 1, 2 and 4 threads: %d loaded, %d runs\n",
              seconds ? seconds : "0", Regions().size(), loads.load(), runs.load());
}

// Several callers of one model take turns.
TEST(Stress, CallersOfOneModel) {
  for (const Region& region : Regions()) {
    const Model model(region, 2);
    std::vector<std::thread> callers;
    for (int caller = 0; caller < 4; ++caller) {
      callers.emplace_back([&] {
        for (int round = 0; round < 5; ++round)
          ExpectSame(RunRegion(model.function(), region), region, " by four");
      });
    }
    for (std::thread& caller : callers) caller.join();
  }
}

}  // namespace
}  // namespace collage
