// SPDX-License-Identifier: Apache-2.0

package blas

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/collage-tvm/collage/byoc"
)

// Probe looks for the plug-in and the library's file and loads neither.
func (l *library) Probe() byoc.Probe {
	p := byoc.Probe{Library: l.Title}
	if _, err := byoc.PluginPath(l.Products.Name); err != nil {
		p.Reason, p.Remedy = err.Error(), "build the plug-ins with `make build`"
		return p
	}
	path, err := l.places.Find()
	if err != nil {
		p.Reason, p.Remedy = err.Error(), l.remedy
		return p
	}
	p.Usable, p.Path, p.Version = true, path, version(path)
	// They make another library of it, so they belong to the keys of costs.
	for _, name := range l.settings {
		if value := os.Getenv(name); value != "" {
			p.Features = append(p.Features, name+"="+value)
		}
	}
	return p
}

// version is what a library's Python package says about itself, since the files of neither have their version in the
// name; else the number after ".so."; "" where there is none. It is part of the key of stored costs.
func version(path string) string {
	folder := filepath.Dir(path)
	// PREFIX/lib/libmkl_rt.so.2 and SITE/scipy_openblas32/lib/libscipy_openblas.so.
	for _, glob := range []string{
		filepath.Join(folder, "python3*", "site-packages", "mkl-*.dist-info"),
		filepath.Join(folder, "..", "..", "scipy_openblas32-*.dist-info"),
	} {
		found, _ := filepath.Glob(glob)
		for _, dist := range found {
			if strings.HasPrefix(filepath.Base(dist), "mkl") != strings.Contains(filepath.Base(path), "mkl") {
				continue
			}
			if text, err := os.ReadFile(filepath.Join(dist, "METADATA")); err == nil {
				if m := versionLine.FindSubmatch(text); m != nil {
					return string(m[1])
				}
			}
		}
	}
	return byoc.FileVersion(path)
}

var versionLine = regexp.MustCompile(`(?m)^Version: (\S+)`)
