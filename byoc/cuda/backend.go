// SPDX-License-Identifier: Apache-2.0

// Package cuda is NVIDIA's cards: TVM's own kernels for them (tvm_cuda), compiled to the card's machine code by NVIDIA's
// compiler as a library, NVRTC. How regions are built and run is byoc/device; TVM's code generator is completed by the
// plug-in (byoc/runtime/cuda_compiler.cc).
//
// What comes in: for the placement, graphs of which it says what can run on such a card. What goes out: candidates by
// rules, and proposed regions.
package cuda

import (
	"fmt"
	"os"
	"regexp"
	"runtime"
	"strings"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/byoc/device"
	"github.com/collage-tvm/collage/byoc/tvm"
	"github.com/collage-tvm/collage/relay"
)

// Name is what users write in --backends.
const Name = "tvm_cuda"

// ArchEnv names the architecture ("sm_90") that regions are compiled for where it is not that of the card that is here;
// with it, regions can be built where no card is.
const ArchEnv = "COLLAGE_CUDA_ARCH"

const kindName = "cuda"

var kind = device.Kind{Name: kindName, Target: target, Prepare: calls.Register,
	Elsewhere: func() bool { return os.Getenv(ArchEnv) != "" }}

type backend struct{ *device.Remote }

// New gives the backend. It needs neither TVM nor CUDA; Probe says whether that is there.
func New() byoc.Backend { return &backend{device.NewRemote(&kind)} }

func (*backend) Name() string { return Name }
func (*backend) Description() string {
	return "TVM's own code generator, for NVIDIA's cards by CUDA: whole regions in the card's memory"
}
func (*backend) Level() byoc.Level        { return byoc.GraphLevel }
func (*backend) Patterns() []byoc.Pattern { return nil }

// limits are what every card takes. TVM's kernels of float16 include a header of CUDA's, which the compiler as a library
// does not bring.
var limits = device.Limits{
	Title: "CUDA",
	Types: []string{"float32", "float64", "int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8", "bool"},
}

// Rules implements byoc.Ruler.
func (*backend) Rules() *byoc.Rules { return limits.Rules() }

// Propose implements byoc.Proposer.
func (*backend) Propose(g *relay.Graph, learnt []byoc.Learnt) []byoc.Proposal {
	return limits.Propose(Name, g, learnt)
}

var architectures = regexp.MustCompile(`^sm_[0-9]{2,3}[af]?$`)

// architecture is the one that ArchEnv names; "" for none.
func architecture() (string, error) {
	named := os.Getenv(ArchEnv)
	if named != "" && !architectures.MatchString(named) {
		return "", fmt.Errorf("%s is %q, which is no architecture as NVIDIA's compilers call it (sm_90)", ArchEnv, named)
	}
	return named, nil
}

// target is TVM's target for regions, and the architecture that they are compiled for.
func target(k *device.Kind) (text, architectureOf string, err error) {
	arch, err := architecture()
	if err != nil {
		return "", "", err
	}
	if arch == "" {
		found, err := k.Chosen()
		if err != nil {
			return "", "", err
		}
		arch = found.Architecture
	}
	return "cuda -arch=" + arch, arch, nil
}

// driver is the driver's library, compiler NVIDIA's compiler as one (byoc/runtime/cuda_driver.cc, cuda_compiler.cc).
var (
	driver   = byoc.Library{Env: "COLLAGE_CUDA_DRIVER", Names: []string{"libcuda.so.1", "libcuda.so"}}
	compiler = byoc.Library{
		Env:      "COLLAGE_NVRTC_LIBRARY",
		Packages: []string{"nvidia/cuda_nvrtc/lib/libnvrtc.so.12", "nvidia/cu13/lib/libnvrtc.so.13"},
		Names:    []string{"libnvrtc.so.12", "libnvrtc.so.13", "libnvrtc.so"},
	}
)

// writerRevision is raised whenever what is written for a region changes, or how the plug-in runs it: what was measured
// of the other form is measured anew.
const writerRevision = 1

// Probe looks for the runtime plug-in, NVIDIA's driver and its compiler, without loading any of them. The version, which
// is part of the key of costs, is that of the TVM that makes the code, and names the compiler's.
func (*backend) Probe() byoc.Probe {
	p := byoc.Probe{Library: "CUDA"}
	unusable := func(reason, remedy string) byoc.Probe {
		p.Reason, p.Remedy = reason, remedy
		return p
	}
	if runtime.GOOS != "linux" {
		return unusable("the CUDA plug-in exists for Linux only, this is "+runtime.GOOS, "use the other backends")
	}
	if _, err := byoc.PluginPath(kindName); err != nil {
		return unusable(err.Error(), "build the plug-ins with `make build`")
	}
	named, err := architecture()
	if err != nil {
		return unusable(err.Error(), "name one, or unset "+ArchEnv)
	}
	path, err := driver.Find()
	if err != nil && named == "" {
		return unusable(err.Error(), "install the driver of your NVIDIA card; where there is none, "+ArchEnv+
			"=sm_90 has regions built for such cards that are not measured or run here")
	}
	nvrtc, err := compiler.Find()
	if err != nil {
		return unusable(err.Error(), "make backends BACKENDS=cuda, or pip install nvidia-cuda-nvrtc-cu12")
	}
	p.Usable, p.Path = true, path
	p.Features = []string{"NVRTC " + byoc.FileVersion(nvrtc)}
	if named != "" {
		p.Features = append(p.Features, named)
	}
	p.Version = fmt.Sprintf("%s+nvrtc.%s+collage.%d", tvm.New().Probe().Version, byoc.FileVersion(nvrtc), writerRevision)
	if named != "" {
		p.Version += "+" + named
	}
	p.Version = strings.TrimPrefix(p.Version, "+")
	return p
}
