// SPDX-License-Identifier: Apache-2.0

package onnxruntime

import (
	"debug/elf"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/collage-tvm/collage/byoc"
)

const remedy = "`make backends BACKENDS=onnxruntime`, or pip install onnxruntime"

// library says where ONNX Runtime may lie; byoc/runtime/onnxruntime_library.cc looks in the same places.
var library = byoc.Library{
	Env:      "COLLAGE_ONNXRUNTIME_LIBRARY",
	Packages: []string{"onnxruntime/capi/libonnxruntime.so*"},
	Prefix:   []string{"lib/libonnxruntime.so*"},
	Names:    []string{"libonnxruntime.so.1", "libonnxruntime.so"},
}

// writerRevision is raised whenever what is written for an operator changes, or how the plug-in runs it: what was
// measured of the other form is measured anew.
const writerRevision = 2

// Probe looks for the plug-in and for ONNX Runtime, without loading either. The version, which is part of the key of
// costs, has the writer's own revision.
func (*backend) Probe() byoc.Probe {
	p := byoc.Probe{Library: "ONNX Runtime"}
	unusable := func(reason, remedy string) byoc.Probe {
		p.Reason, p.Remedy = reason, remedy
		return p
	}
	if runtime.GOOS != "linux" {
		return unusable("the ONNX Runtime plug-in exists for Linux only, this is "+runtime.GOOS, "")
	}
	if _, err := byoc.PluginPath(Name); err != nil {
		return unusable(err.Error(), "`make build`")
	}
	path, err := library.Find()
	if err != nil {
		return unusable(err.Error(), remedy)
	}
	p.Path = path
	number, err := version(path)
	if err != nil {
		return unusable(fmt.Sprintf("%s cannot be read: %v", path, err), remedy)
	}
	p.Usable, p.Version = true, fmt.Sprintf("%s+collage.%d", number, writerRevision)
	return p
}

// version reads the version of the library: its one exported function carries it (OrtGetApiBase@VERS_1.31.1).
func version(path string) (string, error) {
	f, err := elf.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	versions, err := f.DynamicVersions()
	if err != nil {
		return "", err
	}
	for _, v := range versions {
		if number, ok := strings.CutPrefix(v.Name, "VERS_"); ok {
			return number, nil
		}
	}
	_, number, _ := strings.Cut(filepath.Base(path), ".so.")
	return number, nil
}
