// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"maps"
	"slices"
	"strings"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/byoc/tvm"
)

// tvmInfo is what the TVM in this process says about itself.
type tvmInfo struct {
	Library string `json:"library"`
	Version string `json:"version,omitempty"`
	Commit  string `json:"commit,omitempty"`
	LLVM    string `json:"llvm,omitempty"`
	// CPU is LLVM's name of this processor, for which models are compiled unless told otherwise.
	CPU string `json:"cpu,omitempty"`
	// Compiler says that it is all of TVM and not its runtime alone.
	Compiler bool `json:"compiler"`
	// On and Off are what it was built with and without, as TVM names it (USE_CUDA).
	On  []string `json:"on"`
	Off []string `json:"off"`
}

func readTVMInfo() *tvmInfo {
	info := &tvmInfo{Library: bridge.LibraryPath(), Compiler: bridge.HasCompiler(), On: []string{}, Off: []string{}}
	settings := libInfo()
	info.Commit, info.LLVM = settings["GIT_COMMIT_HASH"], settings["LLVM_VERSION"]
	if backend, err := byoc.Lookup(tvm.Name); err == nil {
		info.Version = backend.Probe().Version
	}
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		short, isSwitch := strings.CutPrefix(name, "USE_")
		if !isSwitch {
			continue
		}
		switch value := strings.ToUpper(settings[name]); value {
		case "OFF", "", "0", "FALSE", "NOT-FOUND", "NOTFOUND", "NONE", "IGNORE":
			info.Off = append(info.Off, short)
		default:
			info.On = append(info.On, short)
		}
	}
	if value, err := bridge.Global("target.llvm_get_system_cpu"); err == nil {
		info.CPU, _ = value.Str()
	}
	return info
}

// libInfo is TVM's table of the settings it was built with; empty where TVM has none.
func libInfo() map[string]string {
	settings := map[string]string{}
	value, err := bridge.Global("support.GetLibInfo")
	if err != nil {
		return settings
	}
	object, err := value.Object()
	if err != nil {
		return settings
	}
	defer object.Release()
	entries, err := object.Entries()
	if err != nil {
		return settings
	}
	for _, entry := range entries {
		name, err1 := entry.Key.Str()
		text, err2 := entry.Value.Str()
		if err1 == nil && err2 == nil {
			settings[name] = text
		}
	}
	return settings
}
