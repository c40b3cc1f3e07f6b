// SPDX-License-Identifier: Apache-2.0

package onednn

import (
	"debug/elf"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/collage-tvm/collage/byoc"
)

const remedy = "pip install onednn-cpu-tbb==2022.2.1 tbb intel-cmplr-lib-rt, then build the plug-ins with `make build`"

// Probe looks for a runtime plug-in (a name for byoc.PluginPath) and for the oneDNN that it needs, in the places where
// the dynamic loader would look, without loading either.
func Probe(name string) byoc.Probe {
	p := byoc.Probe{Library: "oneDNN"}
	unusable := func(reason string) byoc.Probe {
		p.Reason, p.Remedy = reason, remedy
		return p
	}
	if runtime.GOOS != "linux" {
		return unusable("the oneDNN plug-in exists for Linux only, this is " + runtime.GOOS)
	}
	plugin, err := byoc.PluginPath(name)
	if err != nil {
		return unusable(err.Error())
	}
	needs, folders, err := dynamicNeeds(plugin)
	if err != nil {
		return unusable(fmt.Sprintf("the plug-in %s cannot be read: %v", plugin, err))
	}
	// The runtime libraries of oneDNN lie beside it and have no search path of their own.
	for _, need := range needs {
		path := findLibrary(need, folders)
		if strings.HasPrefix(need, "libdnnl.so") {
			if path == "" {
				return unusable(fmt.Sprintf("%s, which %s needs, is not in %s nor in the system's folders",
					need, filepath.Base(plugin), strings.Join(folders, ", ")))
			}
			p.Path, p.Version = path, libraryVersion(path)
		} else if path == "" {
			return unusable(fmt.Sprintf("%s, which %s needs, is not in %s nor in the system's folders",
				need, filepath.Base(plugin), strings.Join(folders, ", ")))
		}
	}
	if p.Path == "" {
		return unusable(fmt.Sprintf("%s was not built against oneDNN", plugin))
	}
	p.Usable = true
	p.Features = CPUFeatures()
	return p
}

// dynamicNeeds reads which libraries a shared library needs and in which folders the loader looks for them.
func dynamicNeeds(path string) (needs, folders []string, err error) {
	f, err := elf.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	if needs, err = f.ImportedLibraries(); err != nil {
		return nil, nil, err
	}
	for _, dir := range filepath.SplitList(os.Getenv("LD_LIBRARY_PATH")) {
		if dir != "" {
			folders = append(folders, dir)
		}
	}
	for _, tag := range []elf.DynTag{elf.DT_RPATH, elf.DT_RUNPATH} {
		lists, err := f.DynString(tag)
		if err != nil {
			return nil, nil, err
		}
		for _, list := range lists {
			for _, dir := range strings.Split(list, ":") {
				if dir == "" {
					continue
				}
				origin := filepath.Dir(path)
				dir = strings.NewReplacer("$ORIGIN", origin, "${ORIGIN}", origin).Replace(dir)
				if dir = filepath.Clean(dir); !slices.Contains(folders, dir) {
					folders = append(folders, dir)
				}
			}
		}
	}
	return needs, folders, nil
}

// systemFolders are where the loader looks last.
var systemFolders = []string{
	"/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu", "/usr/lib/aarch64-linux-gnu",
	"/lib64", "/usr/lib64", "/lib", "/usr/lib", "/usr/local/lib", "/usr/local/lib64",
}

func findLibrary(name string, folders []string) string {
	for _, dir := range slices.Concat(folders, systemFolders) {
		path := filepath.Join(dir, name)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			return path
		}
	}
	return ""
}

// libraryVersion is the version of a shared library as its full file name has it. libdnnl.so.2 is a link to
// libdnnl.so.2.6, or, as a wheel cannot hold links, a copy of it.
func libraryVersion(path string) string {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		real = path
	}
	best := versionInName(real)
	size := func(p string) int64 {
		info, err := os.Stat(p)
		if err != nil {
			return -1
		}
		return info.Size()
	}
	stem, _, _ := strings.Cut(filepath.Base(path), ".so")
	siblings, _ := filepath.Glob(filepath.Join(filepath.Dir(real), stem+".so.*"))
	for _, s := range siblings {
		if v := versionInName(s); strings.HasPrefix(v, best) && len(v) > len(best) && size(s) == size(real) {
			best = v
		}
	}
	return best
}

func versionInName(path string) string {
	_, version, _ := strings.Cut(filepath.Base(path), ".so.")
	return version
}

// CPUFeatures are the instruction sets for which oneDNN has kernels and which this processor has.
func CPUFeatures() []string {
	info, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return nil
	}
	return instructionSets(string(info))
}

func instructionSets(cpuinfo string) []string {
	var flags []string
	for line := range strings.Lines(cpuinfo) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "flags" {
			flags = strings.Fields(value)
			break
		}
	}
	var sets []string
	for _, s := range []struct {
		name string
		need []string
	}{
		{"sse41", []string{"sse4_1"}},
		{"avx", []string{"avx"}},
		{"avx2", []string{"avx2", "fma"}},
		{"avx512_core", []string{"avx512f", "avx512bw", "avx512vl", "avx512dq"}},
		{"avx512_core_vnni", []string{"avx512f", "avx512_vnni"}},
		{"avx512_core_bf16", []string{"avx512f", "avx512_bf16"}},
		{"avx512_core_amx", []string{"amx_tile", "amx_int8", "amx_bf16"}},
	} {
		if !slices.ContainsFunc(s.need, func(f string) bool { return !slices.Contains(flags, f) }) {
			sets = append(sets, s.name)
		}
	}
	return sets
}
