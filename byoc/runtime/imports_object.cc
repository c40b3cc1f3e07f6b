// SPDX-License-Identifier: Apache-2.0
#include "imports_object.h"

#include <dmlc/io.h>
#include <elf.h>
#include <tvm/runtime/container/string.h>
#include <tvm/runtime/logging.h>
#include <tvm/runtime/registry.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <vector>

namespace collage {
namespace {

using tvm::runtime::Module;
using tvm::runtime::ModuleNode;
using tvm::runtime::String;

#if defined(__x86_64__)
constexpr Elf64_Half kMachine = EM_X86_64;
// The linker puts it behind all else: code reaches what is within 2 GB of it.
constexpr Elf64_Xword kSectionFlags = SHF_ALLOC | 0x10000000;  // SHF_X86_64_LARGE, which old headers lack
#define COLLAGE_IMPORTS_SECTION ".lrodata"
#elif defined(__aarch64__)
constexpr Elf64_Half kMachine = EM_AARCH64;
constexpr Elf64_Xword kSectionFlags = SHF_ALLOC;
#define COLLAGE_IMPORTS_SECTION ".rodata"
#else
#error "which object files does this processor's linker take?"
#endif

// Names of sections and symbols, one behind the other, each ended by a zero: an ELF string table.
constexpr char kNames[] = "\0__tvm_dev_mblob\0.symtab\0.strtab\0.note.GNU-stack\0" COLLAGE_IMPORTS_SECTION;

Elf64_Word NameAt(const std::string& name) {
  const char* found =
      std::search(kNames, kNames + sizeof(kNames), name.c_str(), name.c_str() + name.size() + 1);
  return static_cast<Elf64_Word>(found - kNames);
}

// An object file with one section of data, which is what is written to it as a stream; a count of its bytes
// stands in front of it, eight bytes that are not counted.
class ObjectFile : public dmlc::SeekStream {
 public:
  explicit ObjectFile(const std::string& path) : path_(path), file_(std::fopen(path.c_str(), "wb")) {
    if (file_ == nullptr) Fail();
    const std::vector<char> front(kData + sizeof(uint64_t), '\0');
    Put(front.data(), front.size());
  }
  ObjectFile(const ObjectFile&) = delete;
  ObjectFile& operator=(const ObjectFile&) = delete;
  ~ObjectFile() override {
    if (file_ != nullptr) std::fclose(file_);
  }

  size_t Read(void*, size_t) override { LOG(FATAL) << "an object file is written only"; }
  size_t Write(const void* data, size_t count) override {
    Put(data, count);
    written_ += count;
    return count;
  }
  void Seek(size_t) override { LOG(FATAL) << "an object file is written from its beginning to its end"; }
  size_t Tell() override { return written_; }

  // Writes what makes it an object file.
  void Finish() {
    const uint64_t data_bytes = sizeof(uint64_t) + written_;
    const uint64_t padding = (8 - data_bytes % 8) % 8;
    constexpr char kZeros[8] = {};
    Put(kZeros, padding);

    Elf64_Sym symbols[2] = {};
    symbols[1].st_name = NameAt("__tvm_dev_mblob");
    symbols[1].st_info = ELF64_ST_INFO(STB_GLOBAL, STT_OBJECT);
    symbols[1].st_shndx = kDataSection;
    symbols[1].st_size = data_bytes;
    const uint64_t symbols_at = kData + data_bytes + padding;
    Put(symbols, sizeof(symbols));

    const uint64_t names_at = symbols_at + sizeof(symbols);
    Put(kNames, sizeof(kNames));
    const uint64_t names_padding = (8 - sizeof(kNames) % 8) % 8;
    Put(kZeros, names_padding);

    Elf64_Shdr sections[kSections] = {};
    sections[kDataSection] =
        Section(COLLAGE_IMPORTS_SECTION, SHT_PROGBITS, kData, data_bytes, kImportsAlignment);
    sections[kDataSection].sh_flags = kSectionFlags;
    sections[kSymbolSection] = Section(".symtab", SHT_SYMTAB, symbols_at, sizeof(symbols), 8);
    sections[kSymbolSection].sh_link = kNameSection;
    sections[kSymbolSection].sh_info = 1;  // where global symbols begin
    sections[kSymbolSection].sh_entsize = sizeof(Elf64_Sym);
    sections[kNameSection] = Section(".strtab", SHT_STRTAB, names_at, sizeof(kNames), 1);
    // Without it the linker takes the library for one that runs code on its stack.
    sections[kStackSection] = Section(".note.GNU-stack", SHT_PROGBITS, names_at, 0, 1);
    Put(sections, sizeof(sections));

    Elf64_Ehdr header = {};
    std::memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = ELFCLASS64;
    header.e_ident[EI_DATA] = ELFDATA2LSB;
    header.e_ident[EI_VERSION] = EV_CURRENT;
    header.e_type = ET_REL;
    header.e_machine = kMachine;
    header.e_version = EV_CURRENT;
    header.e_shoff = names_at + sizeof(kNames) + names_padding;
    header.e_ehsize = sizeof(header);
    header.e_shentsize = sizeof(Elf64_Shdr);
    header.e_shnum = kSections;
    header.e_shstrndx = kNameSection;
    if (std::fseek(file_, 0, SEEK_SET) != 0) Fail();
    Put(&header, sizeof(header));
    const uint64_t count = written_;
    Put(&count, sizeof(count));

    std::FILE* file = file_;
    file_ = nullptr;
    if (std::fclose(file) != 0) Fail();
  }

 private:
  enum { kNoSection, kDataSection, kSymbolSection, kNameSection, kStackSection, kSections };
  // Where the data begin in the file.
  static constexpr uint64_t kData = sizeof(Elf64_Ehdr);
  static_assert(kData % kImportsAlignment == 0, "the data stand aligned in the file, too");

  static Elf64_Shdr Section(const char* name, Elf64_Word type, uint64_t at, uint64_t bytes,
                            uint64_t alignment) {
    Elf64_Shdr section = {};
    section.sh_name = NameAt(name);
    section.sh_type = type;
    section.sh_offset = at;
    section.sh_size = bytes;
    section.sh_addralign = alignment;
    return section;
  }

  void Put(const void* data, size_t count) {
    if (std::fwrite(data, 1, count, file_) != count) Fail();
  }

  [[noreturn]] void Fail() const {
    LOG(FATAL) << "cannot write " << path_ << ": " << std::strerror(errno);
    throw;  // not reached: LOG(FATAL) throws
  }

  std::string path_;
  std::FILE* file_;
  uint64_t written_ = 0;
};

// The modules that a root imports, at any depth, in the places that they have in a file. The root has the
// first.
class Places {
 public:
  explicit Places(ModuleNode* root) {
    std::vector<ModuleNode*> left = {root}, found;
    while (!left.empty()) {
      ModuleNode* node = left.back();
      left.pop_back();
      if (!Give(node)) continue;
      found.push_back(node);
      for (const Module& import : node->imports())
        left.push_back(const_cast<ModuleNode*>(import.operator->()));
    }
    imports_.resize(modules_.size());
    for (const ModuleNode* node : found) {
      const uint64_t place = place_of_.at(node);
      for (const Module& import : node->imports()) {
        const uint64_t imported = place_of_.at(import.operator->());
        // What objects of one library import of each other is no import any more.
        if (imported != place) imports_[place].push_back(imported);
      }
    }
    RefuseCycles();
  }

  // A place's module: of those that are one library any.
  const std::vector<ModuleNode*>& modules() const { return modules_; }
  // The places of what each place imports.
  const std::vector<std::vector<uint64_t>>& imports() const { return imports_; }

 private:
  // Returns false where it had a place.
  bool Give(ModuleNode* node) {
    const bool in_library = node->IsDSOExportable();
    const uint64_t place = in_library && library_ >= 0 ? static_cast<uint64_t>(library_) : modules_.size();
    if (!place_of_.emplace(node, place).second) return false;
    if (place == modules_.size()) modules_.push_back(node);
    if (in_library) library_ = static_cast<int64_t>(place);
    return true;
  }

  // Takes away places that no place imports until none is left; what is left over imports itself.
  void RefuseCycles() const {
    std::vector<uint64_t> importers(modules_.size(), 0), free;
    for (const auto& imported : imports_) {
      for (const uint64_t place : imported) ++importers[place];
    }
    for (uint64_t place = 0; place < importers.size(); ++place) {
      if (importers[place] == 0) free.push_back(place);
    }
    size_t taken = 0;
    for (; !free.empty(); ++taken) {
      const uint64_t place = free.back();
      free.pop_back();
      for (const uint64_t imported : imports_[place]) {
        if (--importers[imported] == 0) free.push_back(imported);
      }
    }
    ICHECK_EQ(taken, modules_.size())
        << "a module of the model imports itself through others; a file cannot say that";
  }

  std::map<const ModuleNode*, uint64_t> place_of_;
  std::vector<ModuleNode*> modules_;
  std::vector<std::vector<uint64_t>> imports_;
  int64_t library_ = -1;
};

}  // namespace

void WriteImports(const Module& root, const std::string& path) {
  const Places places(const_cast<ModuleNode*>(root.operator->()));
  ObjectFile file(path);
  dmlc::Stream* stream = &file;
  // The list of imports counts as one.
  stream->Write(static_cast<uint64_t>(places.modules().size() + 1));
  for (ModuleNode* module : places.modules()) {
    if (module->IsDSOExportable()) {
      stream->Write(std::string("_lib"));
      continue;
    }
    ICHECK(module->IsBinarySerializable())
        << "modules of the kind " << module->type_key() << " cannot be saved";
    stream->Write(std::string(module->type_key()));
    module->SaveToBinary(stream);
  }
  std::vector<uint64_t> begins = {0}, imported;
  for (const auto& of_one : places.imports()) {
    imported.insert(imported.end(), of_one.begin(), of_one.end());
    begins.push_back(imported.size());
  }
  stream->Write(std::string("_import_tree"));
  stream->Write(begins);
  stream->Write(imported);
  file.Finish();
}

// Takes a module and a path, and writes what the module imports there, as an object file for the linker.
TVM_REGISTER_GLOBAL("collage.runtime.WriteImports")
    .set_body_typed([](const Module& root, const String& path) { WriteImports(root, path); });

}  // namespace collage
