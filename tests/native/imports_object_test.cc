// SPDX-License-Identifier: Apache-2.0
//
// What a library imports as an object file: what TVM's loader would read of it, and what the linker.
#include "imports_object.h"

#include <dmlc/memory_io.h>
#include <elf.h>
#include <gtest/gtest.h>
#include <tvm/runtime/module.h>
#include <tvm/runtime/packed_func.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

namespace collage {
namespace {

using tvm::runtime::make_object;
using tvm::runtime::Module;
using tvm::runtime::ModuleNode;
using tvm::runtime::ModulePropertyMask;
using tvm::runtime::Object;
using tvm::runtime::ObjectPtr;
using tvm::runtime::PackedFunc;
using tvm::runtime::String;

// A module that is saved as its text, or that has its code in an object of the linker's.
class Sample : public ModuleNode {
 public:
  Sample(std::string kind, int mask, std::string text)
      : kind_(std::move(kind)), mask_(mask), text_(std::move(text)) {}
  const char* type_key() const final { return kind_.c_str(); }
  int GetPropertyMask() const final { return mask_; }
  PackedFunc GetFunction(const String&, const ObjectPtr<Object>&) final { return {}; }
  void SaveToBinary(dmlc::Stream* stream) final { stream->Write(text_); }

 private:
  std::string kind_;
  int mask_;
  std::string text_;
};

Module Make(const std::string& kind, int mask, const std::string& text = "",
            const std::vector<Module>& imports = {}) {
  Module module(make_object<Sample>(kind, mask, text));
  for (const Module& import : imports) module.Import(import);
  return module;
}

Module Saved(const std::string& kind, const std::string& text, const std::vector<Module>& imports = {}) {
  return Make(kind, ModulePropertyMask::kBinarySerializable, text, imports);
}

Module Code(const std::vector<Module>& imports = {}) {
  return Make("llvm", ModulePropertyMask::kDSOExportable | ModulePropertyMask::kRunnable, "", imports);
}

class ImportsObject : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string Written(const Module& root) {
    const std::string path = folder_ / "imports.o";
    WriteImports(root, path);
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  std::filesystem::path folder_ = std::filesystem::temp_directory_path() /
                                  ("imports-" + std::to_string(reinterpret_cast<uintptr_t>(this)));
};

template <typename T>
T At(const std::string& file, uint64_t offset) {
  T value;
  EXPECT_LE(offset + sizeof(T), file.size());
  std::memcpy(&value, file.data() + offset, sizeof(T));
  return value;
}

// The data of an object file's only symbol; what is asked of the file is asked here.
std::string DataOf(const std::string& file) {
  const auto header = At<Elf64_Ehdr>(file, 0);
  EXPECT_EQ(header.e_type, ET_REL);
  EXPECT_EQ(file.size(), header.e_shoff + header.e_shnum * sizeof(Elf64_Shdr));
  std::map<std::string, Elf64_Shdr> sections;
  const auto section_at = [&](int i) {
    return At<Elf64_Shdr>(file, header.e_shoff + i * sizeof(Elf64_Shdr));
  };
  const Elf64_Shdr names = section_at(header.e_shstrndx);
  for (int i = 1; i < header.e_shnum; ++i) {
    const Elf64_Shdr section = section_at(i);
    sections[&file[names.sh_offset + section.sh_name]] = section;
  }
  EXPECT_EQ(sections.count(".note.GNU-stack"), 1u) << "else the stack would be executable";
  EXPECT_EQ(sections[".note.GNU-stack"].sh_flags & SHF_EXECINSTR, 0u);
  const Elf64_Shdr table = sections[".symtab"];
  EXPECT_EQ(table.sh_size, 2 * sizeof(Elf64_Sym));
  const auto symbol = At<Elf64_Sym>(file, table.sh_offset + sizeof(Elf64_Sym));
  EXPECT_STREQ(&file[names.sh_offset + symbol.st_name], "__tvm_dev_mblob");
  const Elf64_Shdr data = section_at(symbol.st_shndx);
  EXPECT_EQ(data.sh_addralign, kImportsAlignment);
  EXPECT_EQ(data.sh_offset % kImportsAlignment, 0u);
  EXPECT_EQ(data.sh_flags & (SHF_ALLOC | SHF_WRITE), static_cast<Elf64_Xword>(SHF_ALLOC));
  EXPECT_EQ(data.sh_size, symbol.st_size);
  const auto bytes = At<uint64_t>(file, data.sh_offset);
  EXPECT_EQ(bytes + sizeof(uint64_t), data.sh_size);
  return file.substr(data.sh_offset + sizeof(uint64_t), bytes);
}

// As TVM's loader reads it: the kinds with their texts in their order, and for each place those that it
// imports.
struct Read {
  std::vector<std::string> kinds, texts;
  std::vector<uint64_t> begins, imported;

  std::vector<std::string> ImportsOf(size_t place) const {
    std::vector<std::string> names;
    for (uint64_t i = begins[place]; i < begins[place + 1]; ++i) {
      names.push_back(kinds[imported[i]] + " " + texts[imported[i]]);
    }
    return names;
  }
};

Read Parsed(std::string data) {
  dmlc::MemoryStringStream memory(&data);
  dmlc::Stream* stream = &memory;
  Read read;
  uint64_t count = 0;
  EXPECT_TRUE(stream->Read(&count));
  for (uint64_t i = 0; i < count; ++i) {
    std::string kind, text;
    EXPECT_TRUE(stream->Read(&kind));
    if (kind == "_import_tree") {
      EXPECT_TRUE(stream->Read(&read.begins) && stream->Read(&read.imported));
      continue;
    }
    if (kind != "_lib") {
      EXPECT_TRUE(stream->Read(&text));
    }
    read.kinds.push_back(kind);
    read.texts.push_back(text);
  }
  EXPECT_EQ(memory.Tell(), data.size());
  EXPECT_EQ(read.begins.size(), read.kinds.size() + 1);
  return read;
}

TEST_F(ImportsObject, ATreeOfModules) {
  const Module leaf = Saved("leaf", "shared");
  const Module inner = Saved("inner", std::string(1 << 20, 'x'), {leaf});
  const Module root = Saved("root", "first", {Code({inner, Code({leaf, Saved("other", "")})})});
  const Read read = Parsed(DataOf(Written(root)));
  ASSERT_EQ(read.kinds.size(), 5u) << "two modules of code are one library";
  EXPECT_EQ(read.kinds[0], "root") << "where the loader begins";
  EXPECT_EQ(read.ImportsOf(0), std::vector<std::string>{"_lib "});
  for (size_t place = 0; place < read.kinds.size(); ++place) {
    if (read.kinds[place] == "_lib") {
      EXPECT_EQ(read.ImportsOf(place).size(), 3u);
      EXPECT_EQ(read.ImportsOf(place)[0], "inner " + std::string(1 << 20, 'x'));
      EXPECT_EQ(read.ImportsOf(place)[1], "leaf shared");
      EXPECT_EQ(read.ImportsOf(place)[2], "other ");
    } else if (read.kinds[place] == "inner") {
      EXPECT_EQ(read.ImportsOf(place), std::vector<std::string>{"leaf shared"});
    } else if (place > 0) {
      EXPECT_TRUE(read.ImportsOf(place).empty()) << read.kinds[place];
    }
  }
}

TEST_F(ImportsObject, ALibraryIsTheRoot) {
  const Read read = Parsed(DataOf(Written(Code({Saved("one", "1"), Saved("two", "2")}))));
  EXPECT_EQ(read.kinds[0], "_lib");
  EXPECT_EQ(read.ImportsOf(0), (std::vector<std::string>{"one 1", "two 2"}))
      << "in their order: the first has a name";
}

TEST_F(ImportsObject, TheSameBytesForTheSameModules) {
  const auto made = [] {
    return Code({Code({Saved("one", "1")}), Saved("two", "2"), Code({Saved("three", "3")})});
  };
  const std::string first = Written(made());
  for (int turn = 0; turn < 5; ++turn) EXPECT_EQ(Written(made()), first);
}

std::string WhyNot(const Module& root, const std::string& path) {
  try {
    WriteImports(root, path);
  } catch (const tvm::Error& error) {
    return error.what();
  }
  return "";
}

TEST_F(ImportsObject, WhatCannotBeWrittenIsNamed) {
  const std::string path = folder_ / "imports.o";
  EXPECT_NE(WhyNot(Code({Make("device", 0)}), path).find("modules of the kind device cannot be saved"),
            std::string::npos);
  Module outer = Saved("outer", "");
  outer.Import(Code());
  EXPECT_NE(WhyNot(Code({outer}), path).find("imports itself"), std::string::npos)
      << "the library's code imports a module that imports the library's code";
  EXPECT_NE(
      WhyNot(Code({Saved("one", "1")}), folder_ / "none" / "imports.o").find("No such file or directory"),
      std::string::npos);
  EXPECT_NE(
      WhyNot(Code({Saved("one", std::string(1 << 20, 'x'))}), "/dev/full").find("No space left on device"),
      std::string::npos);
}

}  // namespace
}  // namespace collage
