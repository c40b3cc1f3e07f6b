// SPDX-License-Identifier: Apache-2.0

package cost

import (
	"bufio"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
)

// Environment is the part of a key that is the same for all candidates of a backend in one run: what was
// compiled for, and with what.
type Environment struct {
	// Target is TVM's target string with all that it implies ("llvm -keys=cpu -mcpu=...").
	Target string `json:"target"`
	// Device is the processor (or accelerator) that ran it, as Device says it.
	Device string `json:"device"`
	// Library is the backend's library with its version and what of the machine it uses ("oneDNN 2.6 avx2 avx512_core",
	// "TVM 0.19.0 llvm 22.1.8").
	Library string `json:"library,omitempty"`
	// TVM is the version of TVM ("0.19.0").
	TVM string `json:"tvm"`
	// Threads is how many threads the executable may use.
	Threads int `json:"threads"`
	// Options is what else of the build changes the code: optimisation level, disabled passes, tuning log
	// ("O3 -AlterOpLayout").
	Options string `json:"options,omitempty"`
}

// NetworkKind is the Kind of the cost of a whole network.
const NetworkKind = "network"

// ScalesKind is the Kind of what was seen of the values of a network that some backends have rounded (Cost.Scales).
const ScalesKind = "scales"

// Key says what a cost belongs to. Keys are compared with ==.
type Key struct {
	// Kind is "" for the cost of a candidate, NetworkKind for that of a whole network: then Structure is the hash of
	// the normalised module, Backend the backends that may have a part in it, and Composite says which placement it is.
	// For ScalesKind Structure is the same, Backend the engine that computed them in float32, and Composite says which
	// values they are, and on which inputs they were seen.
	Kind string `json:"kind,omitempty"`
	// Structure is the structural key of the computation (relay.Graph.Key): shapes, dtypes, attributes.
	Structure string `json:"structure"`
	Backend   string `json:"backend"`
	// Composite is the pattern's name; "" for TVM's own candidates.
	Composite string `json:"composite,omitempty"`
	Environment
}

// Device describes this machine's processor in one line: its model and those of its vector extensions that kernel
// libraries choose by, since virtual machines hide the one or the other.
var Device = sync.OnceValue(func() string {
	model, features := "", []string(nil)
	file, err := os.Open("/proc/cpuinfo")
	if err == nil {
		defer file.Close()
		lines := bufio.NewScanner(file)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() && (model == "" || features == nil) {
			name, value, _ := strings.Cut(lines.Text(), ":")
			switch strings.TrimSpace(name) {
			case "model name":
				model = strings.Join(strings.Fields(value), " ")
			case "flags", "Features":
				features = vectorFeatures(strings.Fields(value))
			}
		}
	}
	if model == "" {
		model = runtime.GOARCH
	}
	return strings.Join(append([]string{model}, features...), " ")
})

// vectorFeatures are the flags that decide which kernels a library picks, in fixed order.
func vectorFeatures(flags []string) []string {
	features := []string{}
	for _, name := range []string{"avx", "avx2", "fma", "avx_vnni", "avx512f", "avx512_vnni", "avx512_bf16",
		"avx512_fp16", "amx_tile", "amx_bf16", "amx_int8", "asimd", "sve"} {
		if slices.Contains(flags, name) {
			features = append(features, name)
		}
	}
	return features
}
