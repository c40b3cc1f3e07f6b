// SPDX-License-Identifier: Apache-2.0

package openvino

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"

	"github.com/collage-tvm/collage/byoc"
)

const remedy = "make backends BACKENDS=openvino, or pip install openvino==2026.4.1"

// library is where OpenVINO's C library lies: PyPI's wheel, or an installation of Intel's archives.
var library = byoc.Library{
	Env:      "COLLAGE_OPENVINO_LIBRARY",
	Packages: []string{"openvino/libs/libopenvino_c.so*"},
	Prefix:   []string{"lib/libopenvino_c.so*"},
	Names:    []string{"libopenvino_c.so*"},
}

// writerRevision is raised whenever what is written for an operator changes, or how the plug-in runs it: what was
// measured of the other form is measured anew.
const writerRevision = 3

// Probe looks for the runtime plug-in and for OpenVINO, without loading either. The version, which is part of the key
// of costs, has the writer's own revision.
func (backend) Probe() byoc.Probe {
	p := byoc.Probe{Library: "OpenVINO"}
	unusable := func(reason, remedy string) byoc.Probe {
		p.Reason, p.Remedy = reason, remedy
		return p
	}
	if runtime.GOOS != "linux" {
		return unusable("the OpenVINO plug-in exists for Linux only, this is "+runtime.GOOS, "use the other backends")
	}
	if _, err := byoc.PluginPath(Name); err != nil {
		return unusable(err.Error(), "build the plug-ins with `make build`")
	}
	path, err := library.Find()
	if err != nil {
		return unusable(err.Error(), remedy)
	}
	p.Usable, p.Path, p.Version = true, path, fmt.Sprintf("%s+collage.%d", version(path), writerRevision)
	return p
}

// version is the version of OpenVINO whose C library is at path. Python's package says it in full; otherwise the number
// at the end of the file's name (2641 for 2026.4.1) does.
func version(path string) string {
	infos, _ := filepath.Glob(filepath.Join(filepath.Dir(path), "..", "..", "openvino-*.dist-info", "METADATA"))
	for _, info := range infos {
		if text, err := os.ReadFile(info); err == nil {
			if m := metadataVersion.FindSubmatch(text); m != nil {
				return string(m[1])
			}
		}
	}
	return byoc.FileVersion(path)
}

var metadataVersion = regexp.MustCompile(`(?m)^Version: (\S+)`)
