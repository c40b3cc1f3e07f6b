// SPDX-License-Identifier: Apache-2.0

package byoc

import (
	"bufio"
	"debug/elf"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/collage-tvm/collage/bridge"
)

// PluginDirEnv names the folder of the runtime plug-ins; it goes before every other place.
const PluginDirEnv = "COLLAGE_PLUGIN_DIR"

// PluginPath finds the file of a runtime plug-in, by its file name ("libcollage_dnnl.so") or the part of it
// that tells it from the others ("dnnl", "runtime"). It looks in $COLLAGE_PLUGIN_DIR if that is set, and
// otherwise beside libcollage.so where that is loaded, beside this executable, and in lib/ next to it. The
// path is absolute; the error names the folders that were searched, or the file that is there and was cut short: the
// dynamic loader would end the process with SIGBUS. Nothing is loaded.
func PluginPath(name string) (string, error) {
	file := name
	if !strings.HasSuffix(file, ".so") {
		file = "libcollage_" + strings.TrimPrefix(strings.TrimPrefix(file, "lib"), "collage_") + ".so"
	}
	dirs := pluginDirs()
	for _, dir := range dirs {
		path := filepath.Join(dir, file)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			if err := checkWhole(path); err != nil {
				return "", err
			}
			return filepath.Abs(path)
		}
	}
	return "", fmt.Errorf("runtime plug-in %s not found (looked in %s); build it with `make build`, or name its "+
		"folder in %s",
		file, strings.Join(dirs, ", "), PluginDirEnv)
}

// OpenPlugin loads a runtime plug-in, by its path. (TVM's loader of shared libraries is dlopen; that the library holds
// no module of TVM's does not matter.) The runtime that all plug-ins need is loaded from the same folder first: another
// one, of another installation in LD_LIBRARY_PATH, say, would be a second one beside it.
func OpenPlugin(path string) (*bridge.Module, error) {
	runtime := filepath.Join(filepath.Dir(path), runtimePlugin)
	if _, err := os.Stat(runtime); err == nil && filepath.Base(path) != runtimePlugin {
		if _, err := OpenPlugin(runtime); err != nil {
			return nil, err
		}
	}
	m, err := bridge.LoadModuleFromFile(path, "so")
	if err != nil {
		return nil, fmt.Errorf("the runtime plug-in %s does not load: %w", path, err)
	}
	return m, nil
}

const runtimePlugin = "libcollage_runtime.so"

// checkWhole says that a plug-in, or one beside it that it needs, was cut short. What is no library at all the dynamic
// loader refuses by itself.
func checkWhole(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("runtime plug-in %s cannot be read: %w", path, err)
	}
	defer file.Close()
	magic := make([]byte, len(elf.ELFMAG))
	if _, err := io.ReadFull(file, magic); err != nil || string(magic) != elf.ELFMAG {
		return nil
	}
	var needed []string
	library, err := elf.NewFile(file)
	if err == nil {
		needed, err = library.ImportedLibraries()
	}
	if err != nil {
		return fmt.Errorf("runtime plug-in %s is cut short (%w); build it again with `make build`", path, err)
	}
	for _, name := range needed {
		beside := filepath.Join(filepath.Dir(path), name)
		if _, err := os.Stat(beside); err == nil && strings.HasPrefix(name, "libcollage_") {
			if err := checkWhole(beside); err != nil {
				return err
			}
		}
	}
	return nil
}

func pluginDirs() []string {
	if dir := os.Getenv(PluginDirEnv); dir != "" {
		return []string{dir}
	}
	var dirs []string
	seen := map[string]bool{}
	add := func(dir string) {
		if dir = filepath.Clean(dir); !seen[dir] {
			seen[dir] = true
			dirs = append(dirs, dir)
		}
	}
	if lib := mappedFile("libcollage.so"); lib != "" {
		add(filepath.Dir(lib))
	}
	if exe, err := os.Executable(); err == nil {
		if real, err := filepath.EvalSymlinks(exe); err == nil {
			exe = real
		}
		dir := filepath.Dir(exe)
		add(dir)
		add(filepath.Join(dir, "lib"))
		add(filepath.Join(dir, "..", "lib"))
	}
	return dirs
}

// mappedFile is the path of the file with this base name that is mapped into this process; "" if none is.
// (dladdr would say the same, but only bridge speaks C.)
func mappedFile(base string) string {
	paths, _ := MappedFiles() // without /proc nothing is found
	for _, path := range paths {
		if filepath.Base(path) == base {
			return path
		}
	}
	return ""
}

// MappedFiles are the paths of the files whose code is mapped into this process, each once: the program and its shared
// libraries.
func MappedFiles() ([]string, error) {
	f, err := os.Open("/proc/self/maps")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var paths []string
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		// The path is everything from the first '/' of a line: "7f..-7f.. r-xp 00000000 08:01 123   /a b/c.so".
		line := lines.Text()
		if i := strings.IndexByte(line, '/'); i >= 0 && strings.Contains(line[:i], "x") && !slices.Contains(paths, line[i:]) {
			paths = append(paths, line[i:])
		}
	}
	return paths, lines.Err()
}
