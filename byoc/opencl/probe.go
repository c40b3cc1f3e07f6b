// SPDX-License-Identifier: Apache-2.0

package opencl

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/byoc/tvm"
)

const remedy = "install your device's driver; for the processor itself: make backends BACKENDS=opencl, or on Debian " +
	"apt-get install pocl-opencl-icd"

// library is where OpenCL's loader lies, which finds the drivers.
var library = byoc.Library{Env: "COLLAGE_OPENCL_LIBRARY", Names: []string{"libOpenCL.so.1", "libOpenCL.so"}}

// writerRevision is raised whenever what is written for a region changes, or how the plug-in runs it: what was measured
// of the other form is measured anew.
const writerRevision = 3

// Probe looks for the runtime plug-in, OpenCL's loader and at least one driver, without loading any of them. The
// version, which is part of the key of costs, is that of the TVM that makes the code, and names the drivers' files.
func (*backend) Probe() byoc.Probe {
	p := byoc.Probe{Library: "OpenCL"}
	unusable := func(reason, remedy string) byoc.Probe {
		p.Reason, p.Remedy = reason, remedy
		return p
	}
	if runtime.GOOS != "linux" {
		return unusable("the OpenCL plug-in exists for Linux only, this is "+runtime.GOOS, "use the other backends")
	}
	if _, err := byoc.PluginPath(kindName); err != nil {
		return unusable(err.Error(), "build the plug-ins with `make build`")
	}
	path, err := library.Find()
	if err != nil {
		return unusable(err.Error(), remedy)
	}
	drivers, folder := drivers()
	if len(drivers) == 0 {
		return unusable(fmt.Sprintf("OpenCL (%s) has no driver: %s names none", path, folder), remedy)
	}
	p.Usable, p.Path, p.Features = true, path, drivers
	p.Version = fmt.Sprintf("%s+%s+collage.%d", tvm.New().Probe().Version, strings.Join(drivers, "+"), writerRevision)
	p.Version = strings.TrimPrefix(p.Version, "+")
	return p
}

// vendorsEnv names the folder of the drivers' files, as OpenCL's loaders read it (ocl-icd; the Khronos loader's
// OCL_ICD_FILENAMES is not looked at).
const vendorsEnv = "OCL_ICD_VENDORS"

// drivers are the names of the libraries that the files *.icd of OpenCL's folder name, sorted, and where that folder
// is. Of which version they are only who loads them knows (Hardware).
func drivers() (names []string, folder string) {
	folder = "/etc/OpenCL/vendors"
	if named := os.Getenv(vendorsEnv); named != "" {
		folder = named
	}
	files, _ := filepath.Glob(filepath.Join(folder, "*.icd"))
	if strings.HasSuffix(folder, ".icd") {
		files = []string{folder}
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		name := strings.TrimSpace(string(text))
		if err != nil || name == "" {
			continue
		}
		names = append(names, filepath.Base(name))
	}
	slices.Sort(names)
	return slices.Compact(names), folder
}
