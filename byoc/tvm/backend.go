// SPDX-License-Identifier: Apache-2.0

// Package tvm is TVM itself as a backend: it takes whatever TVM can lower, and its share stays inline in the
// network, where TVM's own layout alteration and fusion see it whole.
//
// What comes in: nothing. What goes out: the backend for the registry.
package tvm

import (
	"os"
	"path/filepath"
	"regexp"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/byoc"
)

// Name is what users write in --backends.
const Name = "tvm"

type backend struct{}

// New gives the backend. It needs no TVM; Probe says whether there is one.
func New() byoc.Backend { return backend{} }

func (backend) Name() string { return Name }
func (backend) Description() string {
	return "TVM's own code generator; takes every operator that TVM can lower"
}
func (backend) Level() byoc.Level        { return byoc.OperatorLevel }
func (backend) Compiler() string         { return "" }
func (backend) Patterns() []byoc.Pattern { return nil }
func (backend) TakesAnything() bool      { return true }
func (backend) MergesRegions() bool      { return false }
func (backend) Install() error           { return nil }

// Probe reports the TVM in this process. Without one the backend is not usable: only a TVM with a compiler
// can build a network.
func (backend) Probe() byoc.Probe {
	p := byoc.Probe{Library: "TVM"}
	if !bridge.Loaded() {
		p.Reason = "no TVM is loaded in this process"
		p.Remedy = "run the command with the interpreter that has TVM: python -m collage …"
		return p
	}
	p.Path = bridge.LibraryPath()
	if !bridge.HasCompiler() {
		p.Reason = "only TVM's runtime is loaded in this process, its compiler is not"
		p.Remedy = "load libtvm instead of libtvm_runtime: pip install xtc-tvm-python-bindings==0.19.0.12"
		return p
	}
	p.Usable = true
	p.Version, p.Features = buildInfo(p.Path)
	return p
}

// buildInfo says which TVM this is and what it was built with that decides which code it makes; empty where
// TVM does not say. libtvm itself knows only its commit; the version number stands in the Python package
// around it.
func buildInfo(library string) (version string, features []string) {
	if text, err := os.ReadFile(filepath.Join(filepath.Dir(library), "_ffi", "libinfo.py")); err == nil {
		if m := versionLine.FindSubmatch(text); m != nil {
			version = string(m[1])
		}
	}
	info := libraryInfo()
	if commit := info["GIT_COMMIT_HASH"]; version == "" && len(commit) >= 12 {
		version = "commit " + commit[:12]
	}
	if llvm := info["LLVM_VERSION"]; llvm != "" && llvm != "NOT-FOUND" {
		features = append(features, "llvm "+llvm)
	}
	return version, features
}

var versionLine = regexp.MustCompile(`(?m)^__version__ = "([^"]+)"`)

// libraryInfo is what libtvm says about its own build.
func libraryInfo() map[string]string {
	info := map[string]string{}
	v, err := bridge.Global("support.GetLibInfo")
	if err != nil {
		return info
	}
	object, err := v.Object()
	if err != nil {
		return info
	}
	defer object.Release()
	entries, err := object.Entries()
	if err != nil {
		return info
	}
	for _, e := range entries {
		key, errKey := e.Key.Str()
		value, errValue := e.Value.Str()
		if errKey == nil && errValue == nil {
			info[key] = value
		}
	}
	return info
}
