// SPDX-License-Identifier: Apache-2.0

package deployment

import (
	"cmp"
	"debug/elf"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/collage-tvm/collage/byoc"
)

// Library is a shared library that a model had loaded when it ran.
type Library struct {
	// Path is the file, Name what those who need it call it (its SONAME).
	Path, Name string
	// System says that the machine has it: its distribution's, or its card's driver's.
	System bool
}

// systemFolders are where distributions have their own libraries.
var systemFolders = []string{"/lib/", "/lib64/", "/usr/lib/", "/usr/lib64/"}

// Loaded are the shared libraries that are in this process, in order of their names, but for the model's own: neither its
// file nor what it has in a file of memory (byoc/runtime/device_engine.cc), nor the kernels that a device's driver has
// compiled of it.
func Loaded(model string) ([]Library, error) {
	paths, err := byoc.MappedFiles()
	if err != nil {
		return nil, err
	}
	executable, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return nil, err
	}
	paths = slices.DeleteFunc(paths, func(path string) bool {
		return path == executable || path == model || strings.HasPrefix(path, "/memfd:") || isKernel(path)
	})
	return named(paths)
}

// isKernel says whether a file is one that pocl has compiled, which computes with shared libraries: in its folder for
// them, or where POCL_CACHE_DIR says.
func isKernel(path string) bool {
	cache := os.Getenv("POCL_CACHE_DIR")
	return strings.Contains(path, "/pocl/kcache/") || cache != "" && strings.HasPrefix(path, filepath.Clean(cache)+"/")
}

// named are the libraries at some paths, and those that they choose among on other processors.
func named(paths []string) ([]Library, error) {
	var found []Library
	for _, path := range paths {
		name, err := soname(path)
		if err != nil {
			return nil, fmt.Errorf("%s is in the process, and cannot be read: %w", path, err)
		}
		system := isDriver(name) ||
			slices.ContainsFunc(systemFolders, func(folder string) bool { return strings.HasPrefix(path, folder) })
		found = append(found, Library{path, name, system})
		if strings.HasPrefix(name, "libmkl_core.so") {
			found = append(found, otherProcessors(path)...)
		}
	}
	slices.SortFunc(found, func(a, b Library) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Path, b.Path))
	})
	found = slices.Compact(found)
	for i := 1; i < len(found); i++ {
		if a, b := found[i-1], found[i]; a.Name == b.Name && !a.System && !b.System {
			return nil, fmt.Errorf("there are two libraries %s in the process, %s and %s; a package has one folder for all",
				a.Name, a.Path, b.Path)
		}
	}
	return found, nil
}

// isDriver says whether a library is of NVIDIA's driver, which belongs to the module in the machine's kernel, wherever it
// lies.
func isDriver(name string) bool {
	return strings.HasPrefix(name, "libcuda.so") || strings.HasPrefix(name, "libnvidia-")
}

// otherProcessors are the parts of oneMKL beside one of them that it loads by the processor that it finds.
func otherProcessors(core string) []Library {
	var found []Library
	for _, kind := range []string{"def", "avx2", "avx512"} {
		paths, _ := filepath.Glob(filepath.Join(filepath.Dir(core), "libmkl_"+kind+".so*"))
		for _, path := range paths {
			if name, err := soname(path); err == nil {
				found = append(found, Library{Path: path, Name: name})
			}
		}
	}
	return found
}

// soname is what a library calls itself, else its file's name.
func soname(path string) (string, error) {
	file, err := elf.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	names, err := file.DynString(elf.DT_SONAME)
	if err != nil {
		return "", err
	}
	if len(names) == 0 || strings.ContainsRune(names[0], '/') {
		return filepath.Base(path), nil
	}
	return names[0], nil
}

// glibcOf is the newest version of glibc that a file asks for, as numbers; nil for none.
func glibcOf(path string) ([]int, error) {
	file, err := elf.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	symbols, err := file.ImportedSymbols()
	if err != nil {
		return nil, err
	}
	var newest []int
	for _, symbol := range symbols {
		text, ok := strings.CutPrefix(symbol.Version, "GLIBC_")
		if !ok {
			continue
		}
		var version []int
		for _, part := range strings.Split(text, ".") {
			n, err := strconv.Atoi(part)
			if err != nil {
				version = nil // GLIBC_PRIVATE
				break
			}
			version = append(version, n)
		}
		if slices.Compare(version, newest) > 0 {
			newest = version
		}
	}
	return newest, nil
}

func versionText(version []int) string {
	words := make([]string, len(version))
	for i, n := range version {
		words[i] = strconv.Itoa(n)
	}
	return strings.Join(words, ".")
}
